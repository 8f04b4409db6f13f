#pragma once
// K3's tokenizer: tiktoken ranks, the pre-tokeniser's regular expression, and the control ids of
// tokenizer_config.json. Text never becomes a control id; only control_id names one. Immutable and
// thread-safe after load.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

class Tokenizer {
  public:
    // Reads DIR/tiktoken.model and DIR/tokenizer_config.json. Checks: ranks dense from 0, ranks +
    // control ids = vocab_size (pass the config's), the XTML markers present. Names file, line and
    // value.
    static Result<std::unique_ptr<Tokenizer>> load(const std::filesystem::path& dir,
                                                   int32_t vocab_size);
    ~Tokenizer();

    // Appends the ids of plain text. Invalid UTF-8 is encoded byte by byte. Linear-ish in the
    // length even for a million equal characters. Never fails, never gives a control id.
    void encode(std::string_view text, std::vector<int32_t>& ids) const;

    // Raw bytes of one id: text bytes of a rank, the spelling of a control id. Empty view for an id
    // outside [0, vocab_size).
    std::string_view bytes(int32_t id) const;
    bool is_control(int32_t id) const;  // id >= number of ranks
    bool is_special(int32_t id) const;  // removed by skip_special_tokens
    // By spelling, e.g. "<|open|>".
    std::optional<int32_t> control_id(std::string_view spelling) const;
    int32_t vocab_size() const;

    // The XTML markers and stop ids.
    struct Markers {
        int32_t open, close, sep, end_of_msg, eos;
    };
    const Markers& markers() const;

  private:
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Turns bytes into UTF-8 text piece by piece: an unfinished character is held back, bytes that
// never complete become U+FFFD (one per maximal invalid part, as WHATWG decoders do). One per
// stream.
class Utf8Assembler {
  public:
    // Text that is complete after these bytes.
    std::string push(std::string_view bytes);
    // What is held, as U+FFFD; empty when nothing is.
    std::string finish();

  private:
    std::string held_;
};

}  // namespace k3pod
