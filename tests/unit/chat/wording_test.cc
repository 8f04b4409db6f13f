#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/chat/chat_helpers.h"

namespace k3pod::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class WordingFile : public ::testing::Test {
  protected:
    WordingFile() {
        std::string name =
            (std::filesystem::temp_directory_path() / "k3pod-wording-XXXXXX").string();
        dir_ = ::mkdtemp(name.data());
        std::ifstream in(K3POD_SOURCE_DIR "/models/k3-tiny/chat_format.json");
        wording_ = nlohmann::json::parse(in);
    }
    ~WordingFile() override {
        std::error_code ignored;
        std::filesystem::remove_all(dir_, ignored);
    }

    Result<ChatWording> read(const std::string& text) const {
        std::ofstream(dir_ / "chat_format.json") << text;
        return read_chat_wording(dir_);
    }
    std::string refusal(const std::string& text) const { return read(text).status().message(); }

    std::filesystem::path dir_;
    nlohmann::json wording_;
};

TEST_F(WordingFile, is_read) {
    const ChatWording& wording = tiny_wording();
    EXPECT_EQ(wording.tool_declare, "You can call these tools:\n{tools}");
    EXPECT_EQ(wording.tool_declare_dynamic, "You can call these tools:\n{tools}");
    EXPECT_EQ(wording.tool_choice_none, "You must not call a tool.");
}

TEST_F(WordingFile, may_have_its_own_words_for_later_tools_and_members_of_other_versions) {
    wording_["tool_declare_dynamic"] = "New: {tools}";
    wording_["other"] = {1, 2, 3};
    EXPECT_EQ(read(wording_.dump()).value().tool_declare_dynamic, "New: {tools}");
}

TEST_F(WordingFile, is_named_when_it_is_missing) {
    const Status status = read_chat_wording(dir_).status();
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr((dir_ / "chat_format.json").string()));
}

TEST_F(WordingFile, is_refused_without_a_text_or_its_placeholder) {
    EXPECT_THAT(refusal("{"), HasSubstr("chat_format.json: JSON byte 1"));
    EXPECT_THAT(refusal("[]"), HasSubstr("expected '{', found '['"));
    wording_["tool_choice_none"] = 3;
    EXPECT_THAT(refusal(wording_.dump()), HasSubstr("expected '\"', found '3'"));
    wording_.erase("tool_choice_none");
    EXPECT_THAT(refusal(wording_.dump()), EndsWith("has no text \"tool_choice_none\""));
    wording_["tool_choice_none"] = "No.";
    wording_["thinking_effort"] = "Effort: {Effort}";
    EXPECT_THAT(refusal(wording_.dump()), EndsWith("\"thinking_effort\" is \"Effort: {Effort}\", "
                                                   "which lacks the placeholder {effort}"));
}

}  // namespace
}  // namespace k3pod::testing
