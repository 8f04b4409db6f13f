#include "tokenizer/control_table.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <charconv>
#include <string_view>
#include <unordered_map>

#include "k3pod/base/file.h"
#include "k3pod/base/not_json.h"
#include "tokenizer/printable.h"

namespace k3pod {
namespace {

constexpr int64_t kFileLimitBytes = 16 << 20;

// In the order of their ids from `first_id` on; [BOS] is never emitted, so its name does not
// matter.
constexpr std::array<std::string_view, 5> kMarkers = {"[EOS]", "<|end_of_msg|>", "<|open|>",
                                                      "<|close|>", "<|sep|>"};
constexpr int32_t kFirstMarker = 1;

class ControlTableReader {
  public:
    ControlTableReader(const std::filesystem::path& file, int32_t first_id)
        : file_(file), first_id_(first_id), tokens_(kNumControlIds) {}

    Result<std::vector<ControlToken>> read() {
        K3POD_ASSIGN(const std::string text, read_text_file(file_, kFileLimitBytes));
        simdjson::dom::parser parser;
        simdjson::dom::element document;
        if (const auto error = parser.parse(text).get(document)) {
            return refuse(not_json(text, simdjson::error_message(error)));
        }
        simdjson::dom::object table;
        if (document["added_tokens_decoder"].get(table)) {
            return refuse("has no object added_tokens_decoder, which names the control ids");
        }
        for (const auto entry : table) K3POD_TRY(read_entry(entry.key, entry.value));
        K3POD_TRY(check_markers());
        K3POD_TRY(name_the_rest());
        return std::move(tokens_);
    }

  private:
    Status read_entry(std::string_view key, simdjson::dom::element value) {
        int32_t id = -1;
        const auto [end, error] = std::from_chars(key.begin(), key.end(), id);
        if (error != std::errc() || end != key.end()) {
            return refuse(fmt::format("key {} is not an id", printable(key)));
        }
        const int32_t i = id - first_id_;
        if (id < first_id_ || i >= kNumControlIds) {
            return refuse(
                fmt::format("names id {}, but the control ids are {} to {}: it belongs to "
                            "another tiktoken.model",
                            id, first_id_, first_id_ + kNumControlIds - 1));
        }
        std::string_view spelling;
        bool is_special = false;
        if (value["content"].get(spelling) || value["special"].get(is_special) ||
            spelling.empty()) {
            return refuse(
                fmt::format("id {} needs a text \"content\" and a boolean \"special\"", id));
        }
        tokens_[static_cast<size_t>(i)] = {std::string(spelling), is_special};
        return Status::ok();
    }

    Status check_markers() const {
        for (size_t i = 0; i < kMarkers.size(); ++i) {
            const std::string& found = tokens_[kFirstMarker + i].spelling;
            if (found == kMarkers[i]) continue;
            return refuse(
                fmt::format("id {} is {}, expected \"{}\": this is not K3's control table; take "
                            "tokenizer_config.json from the K3 release",
                            first_id_ + kFirstMarker + static_cast<int32_t>(i),
                            found.empty() ? "not named" : printable(found), kMarkers[i]));
        }
        return Status::ok();
    }

    Status name_the_rest() {
        std::unordered_map<std::string_view, int32_t> id_of;
        for (int32_t i = 0; i < kNumControlIds; ++i) {
            const int32_t id = first_id_ + i;
            std::string& spelling = tokens_[static_cast<size_t>(i)].spelling;
            if (spelling.empty()) spelling = fmt::format("<|reserved_token_{}|>", id);
            if (const auto [at, fresh] = id_of.emplace(spelling, id); !fresh) {
                return refuse(fmt::format("ids {} and {} are both named {}", at->second, id,
                                          printable(spelling)));
            }
        }
        return Status::ok();
    }

    Status refuse(std::string_view what) const {
        return invalid_argument(fmt::format("{}: {}", file_.string(), what));
    }

    const std::filesystem::path& file_;
    const int32_t first_id_;
    std::vector<ControlToken> tokens_;
};

}  // namespace

Result<std::vector<ControlToken>> read_control_table(const std::filesystem::path& file,
                                                     int32_t first_id) {
    return ControlTableReader(file, first_id).read();
}

}  // namespace k3pod
