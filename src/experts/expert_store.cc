#include "k3pod/experts/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "experts/load_shards.h"
#include "k3pod/base/check.h"

namespace k3pod {

struct ExpertStore::Impl {
    explicit Impl(const ModelConfig& model)
        : config(model),
          by_expert(static_cast<size_t>(model.num_moe_layers()) *
                    static_cast<size_t>(model.num_experts)) {}

    std::vector<HeldShard>& of(int32_t layer, int32_t expert) {
        const int64_t moe_layer = layer - config.first_dense_layers;
        return by_expert[static_cast<size_t>(moe_layer * config.num_experts + expert)];
    }

    ModelConfig config;
    HostBuffer memory;                              // every shard, packed
    std::vector<std::vector<HeldShard>> by_expert;  // [MoE layers, E], each by begin
    int64_t size_bytes = 0;
    int64_t num_shards = 0;
    int64_t num_nvfp4_shards = 0;
};

ExpertStore::ExpertStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExpertStore::~ExpertStore() = default;

Result<std::unique_ptr<ExpertStore>> ExpertStore::load(const Checkpoint& checkpoint,
                                                       const ModelConfig& config, Release release,
                                                       std::span<const Shard> shards,
                                                       const LoadProgress& progress) {
    K3POD_ASSIGN(const auto builder, ExpertStoreBuilder::create(config, release, shards));
    K3POD_TRY(load_shards(checkpoint, config, release, shards, progress, *builder));
    return builder->build();
}

std::span<const HeldShard> ExpertStore::find(int32_t layer, int32_t expert) const {
    const ModelConfig& config = impl_->config;
    const bool is_known = config.is_moe_layer(layer) && layer < config.num_layers && expert >= 0 &&
                          expert < config.num_experts;
    if (!is_known) return {};
    return impl_->of(layer, expert);
}

int64_t ExpertStore::size_bytes() const {
    return impl_->size_bytes;
}
int64_t ExpertStore::num_shards() const {
    return impl_->num_shards;
}
int64_t ExpertStore::num_nvfp4_shards() const {
    return impl_->num_nvfp4_shards;
}
const ModelConfig& ExpertStore::config() const {
    return impl_->config;
}

// ---- filling ----

struct ExpertStoreBuilder::Impl {
    struct Entry {
        Shard shard;
        std::span<std::byte> room{};
        HeldShard held{};
        bool is_finished = false;
    };

    std::unique_ptr<ExpertStore::Impl> store;
    std::vector<Entry> entries;
    int64_t used_bytes = 0;
};

ExpertStoreBuilder::ExpertStoreBuilder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExpertStoreBuilder::~ExpertStoreBuilder() = default;

Result<std::unique_ptr<ExpertStoreBuilder>> ExpertStoreBuilder::create(
    const ModelConfig& config, Release release, std::span<const Shard> shards) {
    K3POD_TRY(check_shards(config, shards));
    auto impl = std::make_unique<Impl>();
    impl->store = std::make_unique<ExpertStore::Impl>(config);
    int64_t bytes = 0;
    for (const Shard& shard : shards) {
        bytes += most_packed_shard_bytes(config, release, shard.end - shard.begin);
        impl->entries.push_back({.shard = shard});
    }
    if (bytes > 0) impl->store->memory = HostBuffer::on_huge_pages(bytes);
    return std::unique_ptr<ExpertStoreBuilder>(new ExpertStoreBuilder(std::move(impl)));
}

Result<std::span<std::byte>> ExpertStoreBuilder::room(size_t shard, int64_t packed_bytes) {
    K3POD_CHECK(shard < impl_->entries.size(), "a shard of the list");
    Impl::Entry& entry = impl_->entries[shard];
    if (std::ssize(entry.room) == packed_bytes) return entry.room;
    HostBuffer& memory = impl_->store->memory;
    if (packed_bytes > memory.size_bytes() - impl_->used_bytes) {
        return resource_exhausted(
            fmt::format("{} takes {} bytes, the store of {} bytes has {} left: the shards are not "
                        "of the release that the store was made for",
                        describe(entry.shard), packed_bytes, memory.size_bytes(),
                        memory.size_bytes() - impl_->used_bytes));
    }
    entry.room = {memory.data() + impl_->used_bytes, static_cast<size_t>(packed_bytes)};
    impl_->used_bytes += packed_bytes;
    return entry.room;
}

Status ExpertStoreBuilder::finish(size_t shard) {
    K3POD_CHECK(shard < impl_->entries.size(), "a shard of the list");
    Impl::Entry& entry = impl_->entries[shard];
    const auto held = open_packed_shard(entry.room, impl_->store->config.latent,
                                        entry.shard.end - entry.shard.begin);
    if (!held.is_ok()) return held.status().with_context(describe(entry.shard));
    entry.held = *held;
    entry.is_finished = true;
    return Status::ok();
}

Result<std::unique_ptr<ExpertStore>> ExpertStoreBuilder::build() {
    std::ranges::sort(impl_->entries, {}, [](const Impl::Entry& e) { return e.shard.begin; });
    ExpertStore::Impl& store = *impl_->store;
    for (const Impl::Entry& entry : impl_->entries) {
        K3POD_CHECK(entry.is_finished, "a store is built when every shard is there");
        store.size_bytes += entry.held.size_bytes();
        store.num_shards += 1;
        if (entry.held.format() == WeightFormat::kNvfp4) store.num_nvfp4_shards += 1;
        store.of(entry.shard.layer, entry.shard.expert).push_back(entry.held);
    }
    impl_->entries.clear();
    return std::unique_ptr<ExpertStore>(new ExpertStore(std::move(impl_->store)));
}

}  // namespace k3pod
