#include <utility>

#include "api/chat/answer_builder.h"
#include "api/chat/tag.h"
#include "k3pod/api/chat.h"

namespace k3pod {
namespace {

// Longer than any header that the format gives rise to: beyond, the marker was a slip and the text
// after it is text.
constexpr size_t kMaxHeaderBytes = 1024;

}  // namespace

// Takes tags from the stream of ids and gives the rest to the builder.
struct ChatOutputParser::Impl {
    enum class Header : uint8_t { kNone, kOpening, kClosing };

    Impl(const Tokenizer& t, bool starts_in_think) : tokenizer(t), answer(starts_in_think) {}

    void push(int32_t id, std::vector<ChatEvent>& events) {
        const Tokenizer::Markers& markers = tokenizer.markers();
        if (id == markers.open || id == markers.close) {
            end_header(false, events);
            header = id == markers.open ? Header::kOpening : Header::kClosing;
        } else if (id == markers.sep) {
            end_header(true, events);
        } else if (id == markers.end_of_msg || id == markers.eos) {
            end_header(false, events);
            answer.end_message(events);
        } else if (tokenizer.is_control(id)) {
            return;  // No other control id has a meaning in an answer.
        } else if (header == Header::kNone) {
            answer.text(tokenizer.bytes(id), events);
        } else {
            extend_header(tokenizer.bytes(id), events);
        }
    }

    void extend_header(std::string_view bytes, std::vector<ChatEvent>& events) {
        header_text += bytes;
        if (is_overrun(header_text, header == Header::kClosing) ||
            header_text.size() > kMaxHeaderBytes) {
            end_header(false, events);
        }
    }

    void end_header(bool has_sep, std::vector<ChatEvent>& events) {
        if (header == Header::kNone) return;
        const std::string text = std::exchange(header_text, {});
        const Tag tag = parse_tag(text, has_sep);
        if (std::exchange(header, Header::kNone) == Header::kOpening) {
            answer.open(tag, events);
        } else {
            answer.close(tag.element, events);
        }
        if (has_sep) return;
        const bool was_no_tag = text.size() > kMaxHeaderBytes;
        if (tag.element != Element::kUnknown || was_no_tag) answer.text(tag.rest, events);
    }

    const Tokenizer& tokenizer;
    AnswerBuilder answer;
    Header header = Header::kNone;
    std::string header_text;
};

ChatOutputParser::ChatOutputParser(const Tokenizer& tokenizer, bool starts_in_think)
    : impl_(std::make_unique<Impl>(tokenizer, starts_in_think)) {}
ChatOutputParser::~ChatOutputParser() = default;

void ChatOutputParser::push(int32_t id, std::vector<ChatEvent>& events) {
    impl_->push(id, events);
}

// A header that is not complete is structure, so it is not shown.
void ChatOutputParser::finish(std::vector<ChatEvent>& events) {
    impl_->answer.finish(events);
}

bool ChatOutputParser::in_reasoning() const {
    return impl_->answer.is_in_think();
}

int32_t ChatOutputParser::num_tool_calls() const {
    return impl_->answer.num_tool_calls();
}

}  // namespace k3pod
