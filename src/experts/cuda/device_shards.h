#pragma once
// The shards of one holder where a GPU reads them, and the table by which its kernels find them.

#include <cstdint>
#include <vector>

#include "k3pod/device/cuda.h"
#include "k3pod/experts/expert_tier.h"
#include "k3pod/kernels/experts.h"
#include "k3pod/weights/packed_shard.h"

namespace k3pod {

// Memory that only grows, in pieces large enough that their ends waste nothing. Device memory; on a
// machine where GPU and host share one memory, pinned host memory, which the kernels read as fast.
class ShardMemory {
  public:
    // expected_bytes: of all that will be appended, padding included.
    ShardMemory(int64_t expected_bytes, bool is_pinned)
        : expected_bytes_(expected_bytes), is_pinned_(is_pinned) {}

    // Copies to the end, aligned to kAlignment. `bytes` may be freed when this returns.
    Result<const std::byte*> append(std::span<const std::byte> bytes);

    static constexpr int64_t kAlignment = 256;

  private:
    Status add_piece(int64_t at_least_bytes);

    int64_t expected_bytes_;  // from here on
    bool is_pinned_;
    std::vector<DeviceBuffer> device_;
    std::vector<PinnedBuffer> pinned_;
    std::byte* end_ = nullptr;  // of what is used in the newest piece
    int64_t free_bytes_ = 0;    // behind it
};

// Filled by add(); immutable after seal().
class DeviceShards {
  public:
    // For the most bytes that the shards of the release take.
    static Result<std::unique_ptr<DeviceShards>> create(const ModelConfig& config, Release release,
                                                        std::span<const Shard> shards);
    // Copies the weights, in any order of shards; they may be freed when this returns.
    Status add(const Shard& shard, const HeldShard& weights);
    // After the last shard: the table, and the end of every copy.
    Status seal();

    const kernels::ExpertTable& table() const { return table_; }
    // moe_layer: an index among the MoE layers.
    bool holds(int32_t moe_layer, int32_t expert) const;
    int64_t size_bytes() const { return size_bytes_; }
    int64_t num_shards() const { return std::ssize(shards_); }
    int64_t num_nvfp4_shards() const { return num_nvfp4_shards_; }

  private:
    DeviceShards(const ModelConfig& config, ShardMemory memory);
    Status make_table();

    struct Placed {
        int32_t slot = 0;   // MoE layer x E + expert
        int32_t begin = 0;  // first column
        kernels::ExpertShard shard;
    };

    int32_t first_moe_layer_;
    int32_t num_slots_;
    ShardMemory memory_;
    std::vector<Placed> shards_;        // by slot, then column
    std::vector<int32_t> first_shard_;  // [slots + 1]
    DeviceBuffer device_shards_, device_first_shard_;
    kernels::ExpertTable table_;
    int64_t size_bytes_ = 0;
    int64_t num_nvfp4_shards_ = 0;
};

}  // namespace k3pod
