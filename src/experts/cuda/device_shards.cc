#include "experts/cuda/device_shards.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "experts/load_shards.h"

namespace k3pod {
namespace {

constexpr int64_t kPieceBytes = int64_t{256} << 20;

int64_t round_up(int64_t bytes) {
    return (bytes + ShardMemory::kAlignment - 1) / ShardMemory::kAlignment *
           ShardMemory::kAlignment;
}

// Data and scales of three matrices, each padded.
int64_t most_bytes(const ModelConfig& config, Release release, std::span<const Shard> shards) {
    int64_t bytes = 0;
    for (const Shard& shard : shards) {
        bytes += expert_shard_bytes(config, release, shard.end - shard.begin) +
                 6 * ShardMemory::kAlignment;
    }
    return bytes;
}

Result<kernels::ExpertMatrix> place(const MatrixView& matrix, ShardMemory& memory) {
    const auto data = matrix_data_bytes(matrix.format, matrix.rows, matrix.cols);
    const auto scales = matrix_scale_bytes(matrix.format, matrix.rows, matrix.cols);
    kernels::ExpertMatrix placed{.global_scale = matrix.global_scale};
    K3POD_ASSIGN(placed.data, memory.append({matrix.data, static_cast<size_t>(data)}));
    K3POD_ASSIGN(placed.scales, memory.append({matrix.scales, static_cast<size_t>(scales)}));
    return placed;
}

template <class T>
Result<DeviceBuffer> copy_of(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    K3POD_ASSIGN(DeviceBuffer buffer, DeviceBuffer::create(bytes));
    K3POD_TRY(copy_to_device(buffer.data(), values.data(), bytes));
    return buffer;
}

// Copies from pageable memory return when they have read it, not when they have arrived.
Status finish_copies() {
    K3POD_ASSIGN(const DeviceEvent all, DeviceEvent::create());
    K3POD_TRY(all.record(nullptr));
    return all.synchronize();
}

}  // namespace

Result<const std::byte*> ShardMemory::append(std::span<const std::byte> bytes) {
    const int64_t padded = round_up(std::ssize(bytes));
    if (padded > free_bytes_) K3POD_TRY(add_piece(padded));
    std::byte* const at = end_;
    if (is_pinned_) {
        std::memcpy(at, bytes.data(), bytes.size());
    } else {
        K3POD_TRY(copy_to_device(at, bytes.data(), std::ssize(bytes)));
    }
    end_ += padded;
    free_bytes_ -= padded;
    expected_bytes_ -= padded;
    return static_cast<const std::byte*>(at);
}

Status ShardMemory::add_piece(int64_t at_least_bytes) {
    const int64_t bytes = std::max(at_least_bytes, std::min(kPieceBytes, expected_bytes_));
    if (is_pinned_) {
        K3POD_ASSIGN(PinnedBuffer piece, PinnedBuffer::create(bytes));
        pinned_.push_back(std::move(piece));
        end_ = pinned_.back().data();
    } else {
        K3POD_ASSIGN(DeviceBuffer piece, DeviceBuffer::create(bytes));
        device_.push_back(std::move(piece));
        end_ = device_.back().data();
    }
    free_bytes_ = bytes;
    return Status::ok();
}

DeviceShards::DeviceShards(const ModelConfig& config, ShardMemory memory)
    : first_moe_layer_(config.first_dense_layers),
      num_slots_(config.num_moe_layers() * config.num_experts),
      memory_(std::move(memory)) {
    table_.num_experts = config.num_experts;
    table_.latent = config.latent;
}

Result<std::unique_ptr<DeviceShards>> DeviceShards::create(const ModelConfig& config,
                                                           Release release,
                                                           std::span<const Shard> shards) {
    K3POD_TRY(check_shards(config, shards));
    K3POD_ASSIGN(const CudaProperties gpu, usable_gpu());
    return std::unique_ptr<DeviceShards>(new DeviceShards(
        config, ShardMemory(most_bytes(config, release, shards), gpu.is_integrated)));
}

Status DeviceShards::add(const Shard& shard, const HeldShard& weights) {
    const int32_t moe_layer = shard.layer - first_moe_layer_;
    Placed placed{
        .slot = moe_layer * table_.num_experts + shard.expert, .begin = shard.begin, .shard = {}};
    placed.shard.width = weights.w1.rows;
    placed.shard.format = weights.format();
    K3POD_ASSIGN(placed.shard.w1, place(weights.w1, memory_));
    K3POD_ASSIGN(placed.shard.w3, place(weights.w3, memory_));
    K3POD_ASSIGN(placed.shard.w2, place(weights.w2, memory_));
    size_bytes_ += weights.size_bytes();
    if (weights.format() == WeightFormat::kNvfp4) ++num_nvfp4_shards_;
    shards_.push_back(placed);
    return Status::ok();
}

Status DeviceShards::seal() {
    K3POD_TRY(make_table());
    return finish_copies();
}

Status DeviceShards::make_table() {
    std::ranges::sort(shards_, {},
                      [](const Placed& placed) { return std::pair(placed.slot, placed.begin); });
    std::vector<kernels::ExpertShard> in_order;
    first_shard_.assign(static_cast<size_t>(num_slots_) + 1, 0);
    for (const Placed& placed : shards_) {
        in_order.push_back(placed.shard);
        ++first_shard_[static_cast<size_t>(placed.slot) + 1];
        table_.max_width = std::max(table_.max_width, placed.shard.width);
    }
    for (size_t slot = 1; slot < first_shard_.size(); ++slot) {
        table_.max_shards_per_expert = std::max(table_.max_shards_per_expert, first_shard_[slot]);
        first_shard_[slot] += first_shard_[slot - 1];
    }
    K3POD_ASSIGN(device_shards_, copy_of(in_order));
    K3POD_ASSIGN(device_first_shard_, copy_of(first_shard_));
    table_.shards = device_shards_.as<const kernels::ExpertShard>();
    table_.first_shard = device_first_shard_.as<const int32_t>();
    return Status::ok();
}

bool DeviceShards::holds(int32_t moe_layer, int32_t expert) const {
    if (moe_layer < 0 || expert < 0 || expert >= table_.num_experts) return false;
    const int64_t slot = int64_t{moe_layer} * table_.num_experts + expert;
    if (slot >= num_slots_) return false;
    return first_shard_[static_cast<size_t>(slot)] < first_shard_[static_cast<size_t>(slot) + 1];
}

}  // namespace k3pod
