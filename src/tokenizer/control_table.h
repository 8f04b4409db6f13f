#pragma once
// The control ids of tokenizer_config.json: the 256 ids after the last rank, some of them named.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

inline constexpr int32_t kNumControlIds = 256;

struct ControlToken {
    std::string spelling;
    bool is_special = true;  // Removed by skip_special_tokens.
};

// Entry i is the id first_id + i; an id without a name is spelled <|reserved_token_ID|>. Refuses
// ids outside the range, a spelling given twice, and a table whose markers are not K3's: the whole
// model family shares one tiktoken.model, so only these names tell a K3 tokenizer from its
// siblings.
Result<std::vector<ControlToken>> read_control_table(const std::filesystem::path& file,
                                                     int32_t first_id);

}  // namespace k3pod
