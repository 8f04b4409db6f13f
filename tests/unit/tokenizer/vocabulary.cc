#include "tests/unit/tokenizer/vocabulary.h"

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace k3pod::testing {

VocabularyDir::VocabularyDir() {
    std::string name =
        (std::filesystem::temp_directory_path() / "k3pod-vocabulary-XXXXXX").string();
    dir_ = ::mkdtemp(name.data());
}

VocabularyDir::~VocabularyDir() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
}

void VocabularyDir::write(std::string_view file_name, std::string_view text) const {
    std::ofstream(dir_ / file_name, std::ios::binary) << text;
}

void VocabularyDir::remove(std::string_view file_name) const {
    std::filesystem::remove(dir_ / file_name);
}

std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t bits = 0;
        for (size_t k = i; k < i + 3; ++k) {
            bits = bits << 8 | (k < bytes.size() ? static_cast<uint8_t>(bytes[k]) : 0u);
        }
        for (size_t k = 0; k < 4; ++k) {
            text += i + k <= bytes.size() ? kDigits[bits >> (18 - 6 * k) & 63u] : '=';
        }
    }
    return text;
}

std::string rank_file(const std::vector<std::string>& merged) {
    std::string text;
    int32_t rank = 0;
    const auto add = [&](std::string_view bytes) {
        text += base64(bytes) + " " + std::to_string(rank++) + "\n";
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (const std::string& bytes : merged) add(bytes);
    return text;
}

ControlNames k3_control_names() {
    return {{0, "[BOS]"},    {1, "[EOS]"},     {2, "<|end_of_msg|>"},
            {3, "<|open|>"}, {4, "<|close|>"}, {5, "<|sep|>"}};
}

std::string control_file(int32_t first_id, const ControlNames& names) {
    nlohmann::json table = nlohmann::json::object();
    for (const auto& [distance, name] : names) {
        table[std::to_string(first_id + distance)] = {{"content", name}, {"special", distance < 3}};
    }
    return nlohmann::json{{"added_tokens_decoder", table}}.dump(1);
}

}  // namespace k3pod::testing
