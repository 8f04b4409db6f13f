#include "k3pod/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <unordered_map>

#include "tokenizer/bpe.h"
#include "tokenizer/control_table.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/rank_table.h"
#include "tokenizer/text_cutter.h"

namespace k3pod {

struct Tokenizer::Impl {
    RankTable ranks;
    std::vector<ControlToken> control;
    PreTokenizer pre_tokenizer;
    std::unordered_map<std::string_view, int32_t> control_ids{};  // Keys are views into `control`.
    Markers markers{};
};

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::filesystem::path& dir,
                                                   int32_t vocab_size) {
    const auto ranks_file = dir / "tiktoken.model";
    K3POD_ASSIGN(RankTable ranks, RankTable::read(ranks_file));
    const int32_t num_ranks = ranks.num_ranks();
    if (num_ranks + kNumControlIds != vocab_size) {
        return invalid_argument(fmt::format(
            "{}: has {} ranks, which with {} control ids make {}; the model's vocab_size is {}: "
            "take tiktoken.model and config.json from the same release",
            ranks_file.string(), num_ranks, kNumControlIds, num_ranks + kNumControlIds,
            vocab_size));
    }
    K3POD_ASSIGN(std::vector<ControlToken> control,
                 read_control_table(dir / "tokenizer_config.json", num_ranks));
    K3POD_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::create());
    auto impl = std::make_unique<Impl>(
        Impl{std::move(ranks), std::move(control), std::move(pre_tokenizer)});
    for (int32_t i = 0; i < kNumControlIds; ++i) {
        impl->control_ids[impl->control[static_cast<size_t>(i)].spelling] = num_ranks + i;
    }
    const auto id_of = [&](std::string_view spelling) { return impl->control_ids.at(spelling); };
    impl->markers = {.open = id_of("<|open|>"),
                     .close = id_of("<|close|>"),
                     .sep = id_of("<|sep|>"),
                     .end_of_msg = id_of("<|end_of_msg|>"),
                     .eos = id_of("[EOS]")};
    return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
    TextCutter cutter(text);
    BpeMerger merger(impl_->ranks);
    std::vector<std::string_view> pieces;
    for (TextSlice slice = cutter.next(); !slice.text.empty(); slice = cutter.next()) {
        if (slice.is_utf8) {
            impl_->pre_tokenizer.split(slice.text, pieces);
            for (const std::string_view piece : pieces) merger.encode(piece, ids);
        } else {
            for (const char byte : slice.text) ids.push_back(impl_->ranks.byte_rank(byte));
        }
    }
}

std::string_view Tokenizer::bytes(int32_t id) const {
    const int32_t num_ranks = impl_->ranks.num_ranks();
    if (id < 0 || id >= vocab_size()) return {};
    if (id < num_ranks) return impl_->ranks.bytes(id);
    return impl_->control[static_cast<size_t>(id - num_ranks)].spelling;
}

bool Tokenizer::is_control(int32_t id) const {
    return id >= impl_->ranks.num_ranks();
}

bool Tokenizer::is_special(int32_t id) const {
    if (!is_control(id) || id >= vocab_size()) return false;
    return impl_->control[static_cast<size_t>(id - impl_->ranks.num_ranks())].is_special;
}

std::optional<int32_t> Tokenizer::control_id(std::string_view spelling) const {
    const auto at = impl_->control_ids.find(spelling);
    if (at == impl_->control_ids.end()) return std::nullopt;
    return at->second;
}

int32_t Tokenizer::vocab_size() const {
    return impl_->ranks.num_ranks() + kNumControlIds;
}

const Tokenizer::Markers& Tokenizer::markers() const {
    return impl_->markers;
}

}  // namespace k3pod
