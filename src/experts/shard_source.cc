#include "k3pod/experts/shard_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "experts/load_shards.h"
#include "k3pod/wire/codec.h"

namespace k3pod {
namespace {

std::shared_ptr<const PackedShard> pack(const ExpertShardWeights& weights) {
    const HeldShard held = held_shard(weights);
    auto shard = std::make_shared<PackedShard>();
    shard->bytes = HostBuffer(packed_shard_bytes(held.format(), held.w1.cols, held.w1.rows));
    pack_shard(held, {shard->bytes.data(), static_cast<size_t>(shard->bytes.size_bytes())});
    seal_packed_shard(*shard);
    return shard;
}

class CheckpointSource final : public ShardSource {
  public:
    CheckpointSource(const Checkpoint& checkpoint, const ModelConfig& config, Release release)
        : checkpoint_(checkpoint), config_(config), release_(release) {}

    uint64_t place_of(int32_t layer, int32_t expert) const override {
        constexpr int kOffsetBits = 48;  // a file of 256 TiB
        const auto [file, offset] = place_in_files(checkpoint_, {.layer = layer, .expert = expert});
        return static_cast<uint64_t>(file) << kOffsetBits | static_cast<uint64_t>(offset);
    }

    int64_t most_bytes(const Shard& shard) const override {
        return most_packed_shard_bytes(config_, release_, shard.end - shard.begin);
    }

    Result<std::vector<std::shared_ptr<const PackedShard>>> read(
        std::span<const Shard> slices) const override {
        std::vector<ColumnRange> columns;
        for (const Shard& slice : slices) columns.push_back({slice.begin, slice.end});
        auto weights = load_expert_slices(checkpoint_, config_, release_, slices[0].layer,
                                          slices[0].expert, columns);
        if (!weights.is_ok()) return weights.status().with_context(describe(slices[0]));
        std::vector<std::shared_ptr<const PackedShard>> packed;
        for (ExpertShardWeights& slice : *weights) {
            packed.push_back(pack(slice));
            slice = {};  // its memory goes before the next one's comes
        }
        return packed;
    }

  private:
    const Checkpoint& checkpoint_;
    const ModelConfig config_;
    const Release release_;
};

}  // namespace

void seal_packed_shard(PackedShard& shard) {
    const std::span<const std::byte> bytes = shard.view();
    shard.chunk_hashes.clear();
    for (size_t at = 0; at < bytes.size(); at += kShardChunkBytes) {
        const size_t size = std::min<size_t>(kShardChunkBytes, bytes.size() - at);
        shard.chunk_hashes.push_back(chunk_hash(bytes.subspan(at, size)));
    }
    shard.hash = shard_hash(shard.chunk_hashes);
}

std::unique_ptr<ShardSource> make_checkpoint_source(const Checkpoint& checkpoint,
                                                    const ModelConfig& config, Release release) {
    return std::make_unique<CheckpointSource>(checkpoint, config, release);
}

uint64_t shard_stamp(const Checkpoint& checkpoint, uint64_t model_fingerprint, const Shard& shard) {
    const auto [file, offset] = place_in_files(checkpoint, shard);
    struct stat info {};
    // A file that is gone shows when it is read.
    (void)::stat(checkpoint.file_path(file).c_str(), &info);
    const int64_t parts[] = {static_cast<int64_t>(model_fingerprint),
                             file,
                             offset,
                             info.st_size,
                             info.st_mtim.tv_sec,
                             info.st_mtim.tv_nsec,
                             shard.layer,
                             shard.expert,
                             shard.begin,
                             shard.end,
                             int64_t{kPackedMagic}};
    return wire::hash64(std::as_bytes(std::span(parts)));
}

}  // namespace k3pod
