#include "text_files.h"

namespace k3pod {

Result<TextFiles> read_text_files(const std::filesystem::path& dir, const ModelConfig& config) {
    TextFiles files;
    K3POD_ASSIGN(files.tokenizer, Tokenizer::load(dir, config.vocab));
    K3POD_ASSIGN(files.wording, read_chat_wording(dir));
    K3POD_ASSIGN(files.defaults, read_generation_defaults(dir));
    return files;
}

}  // namespace k3pod
