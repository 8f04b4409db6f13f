// Any bytes: they encode to ordinary ids, and these decode to the same bytes.

#include "k3pod/base/check.h"
#include "tests/support/tiny_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k3pod;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const std::vector<int32_t> ids = testing::encode_tiny(bytes);
    for (const int32_t id : ids) {
        K3POD_CHECK(id >= 0 && id < 2048, "text became a control id");
    }
    K3POD_CHECK(testing::decode_tiny(ids) == bytes, "decoding does not give the text back");

    // However the bytes arrive, a stream shows the same text.
    Utf8Assembler whole;
    Utf8Assembler by_token;
    std::string text;
    for (const int32_t id : ids) text += by_token.push(testing::tiny_tokenizer().bytes(id));
    text += by_token.finish();
    std::string expected = whole.push(bytes);
    expected += whole.finish();
    K3POD_CHECK(expected == text, "text depends on how tokens cut it");
    return 0;
}
