#pragma once
// What only a station reads of the model folder: how text becomes tokens, how a conversation
// becomes text, and how tokens are drawn unless a request says otherwise.

#include <filesystem>
#include <memory>

#include "k3pod/api/chat.h"
#include "k3pod/base/status.h"
#include "k3pod/tokenizer/tokenizer.h"
#include "k3pod/weights/model_config.h"
#include "model_folder.h"

namespace k3pod {

struct TextFiles {
    std::unique_ptr<Tokenizer> tokenizer;
    ChatWording wording;
    GenerationDefaults defaults;
};

// The refusals are those that a station ends with, so that `inspect` and `plan` say them before.
Result<TextFiles> read_text_files(const std::filesystem::path& dir, const ModelConfig& config);

}  // namespace k3pod
