#pragma once
// The tokenizer of models/k3-tiny: 2,048 ranks, control ids 2048 to 2303.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/tokenizer/tokenizer.h"

namespace k3pod::testing {

inline const Tokenizer& tiny_tokenizer() {
    static const std::unique_ptr<Tokenizer> tokenizer =
        Tokenizer::load(K3POD_SOURCE_DIR "/models/k3-tiny", 2304).value();
    return *tokenizer;
}

inline std::vector<int32_t> encode_tiny(std::string_view text) {
    std::vector<int32_t> ids;
    tiny_tokenizer().encode(text, ids);
    return ids;
}

// The bytes of all ids, control ids by their spelling.
inline std::string decode_tiny(const std::vector<int32_t>& ids) {
    std::string bytes;
    for (const int32_t id : ids) bytes += tiny_tokenizer().bytes(id);
    return bytes;
}

}  // namespace k3pod::testing
