#include "tokenizer/files.h"

#include <fmt/format.h>

#include <fstream>

namespace k3pod {

Result<std::string> read_file(const std::filesystem::path& file, int64_t limit_bytes) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    std::ifstream in(file, std::ios::binary);
    if (error || !in) {
        return not_found(fmt::format("{}: cannot be read ({}); copy it from the model's release",
                                     file.string(),
                                     error ? error.message() : "not a readable file"));
    }
    if (size > static_cast<uintmax_t>(limit_bytes)) {
        return invalid_argument(
            fmt::format("{}: has {} bytes, the limit is {}; it is not the file that "
                        "the model was released with",
                        file.string(), size, limit_bytes));
    }
    std::string text(static_cast<size_t>(size), '\0');
    in.read(text.data(), static_cast<std::streamsize>(size));
    if (in.gcount() != static_cast<std::streamsize>(size)) {
        return data_loss(fmt::format("{}: only {} of {} bytes could be read; check the disk",
                                     file.string(), in.gcount(), size));
    }
    return text;
}

std::string printable(std::string_view value) {
    constexpr size_t kShown = 40;
    std::string text = "\"";
    for (const char c : value.substr(0, kShown)) {
        if (c >= ' ' && c <= '~') {
            text += c;
        } else {
            text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
        }
    }
    text += value.size() > kShown ? "...\"" : "\"";
    return text;
}

}  // namespace k3pod
