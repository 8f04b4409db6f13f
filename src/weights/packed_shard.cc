#include "k3pod/weights/packed_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "k3pod/base/check.h"
#include "k3pod/wire/codec.h"

namespace k3pod {
namespace {

constexpr int64_t round_up(int64_t bytes) {
    return (bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

// Bytes of a matrix with the padding behind its data and its scales.
int64_t padded_bytes(WeightFormat format, int32_t rows, int32_t cols) {
    return round_up(matrix_data_bytes(format, rows, cols)) +
           round_up(matrix_scale_bytes(format, rows, cols));
}

// Walks through the parts of packed bytes in their order.
template <class Byte>
class Walker {
  public:
    explicit Walker(Byte* at) : at_(at) {}

    Byte* step(int64_t bytes) { return std::exchange(at_, at_ + round_up(bytes)); }
    void copy(const std::byte* from, int64_t bytes) {
        Byte* const to = step(bytes);
        std::memcpy(to, from, static_cast<size_t>(bytes));
        std::fill(to + bytes, at_, std::byte{0});  // the padding is hashed, too
    }
    MatrixView view(const PackedHead& head, int32_t rows, int32_t cols, float scale) {
        MatrixView matrix{.format = head.format, .rows = rows, .cols = cols};
        matrix.data = step(matrix_data_bytes(head.format, rows, cols));
        matrix.scales = step(matrix_scale_bytes(head.format, rows, cols));
        matrix.global_scale = scale;
        return matrix;
    }

  private:
    Byte* at_;
};

int64_t matrix_bytes(const MatrixView& matrix) {
    return matrix_data_bytes(matrix.format, matrix.rows, matrix.cols) +
           matrix_scale_bytes(matrix.format, matrix.rows, matrix.cols);
}

}  // namespace

int64_t HeldShard::size_bytes() const {
    return matrix_bytes(w1) + matrix_bytes(w3) + matrix_bytes(w2);
}

HeldShard held_shard(const ExpertShardWeights& weights) {
    return {.w1 = weights.w1.view(), .w3 = weights.w3.view(), .w2 = weights.w2.view()};
}

int64_t packed_shard_bytes(WeightFormat format, int32_t latent, int32_t width) {
    return int64_t{sizeof(PackedHead)} + 2 * padded_bytes(format, width, latent) +
           padded_bytes(format, latent, width);
}

int64_t most_packed_shard_bytes(const ModelConfig& config, Release release, int32_t width) {
    const WeightFormat format =
        release == Release::kNvfp4 ? WeightFormat::kNvfp4 : WeightFormat::kMxfp4;
    return packed_shard_bytes(format, config.latent, width);
}

void pack_shard(const HeldShard& shard, std::span<std::byte> out) {
    const int32_t width = shard.w1.rows, latent = shard.w1.cols;
    K3POD_CHECK(std::ssize(out) == packed_shard_bytes(shard.format(), latent, width),
                "the output holds the packed shard");
    const PackedHead head{.format = shard.format(),
                          .width = width,
                          .latent = latent,
                          .size_bytes = std::ssize(out),
                          .w1_scale = shard.w1.global_scale,
                          .w3_scale = shard.w3.global_scale,
                          .w2_scale = shard.w2.global_scale};
    static_assert(std::is_trivially_copyable_v<PackedHead>);
    Walker walker(out.data());
    walker.copy(reinterpret_cast<const std::byte*>(&head), sizeof(head));
    for (const MatrixView& matrix : {shard.w1, shard.w3, shard.w2}) {
        walker.copy(matrix.data, matrix_data_bytes(matrix.format, matrix.rows, matrix.cols));
        walker.copy(matrix.scales, matrix_scale_bytes(matrix.format, matrix.rows, matrix.cols));
    }
}

Result<HeldShard> open_packed_shard(std::span<const std::byte> bytes, int32_t latent,
                                    int32_t width) {
    PackedHead head;
    if (bytes.size() < sizeof(head)) {
        return data_loss(fmt::format("a packed shard has {} bytes, expected at least {}",
                                     bytes.size(), sizeof(head)));
    }
    std::memcpy(&head, bytes.data(), sizeof(head));
    const bool is_fp4 = head.format == WeightFormat::kMxfp4 || head.format == WeightFormat::kNvfp4;
    if (head.magic != kPackedMagic || !is_fp4) {
        return data_loss(
            fmt::format("the head of a packed shard begins with {:#010x} and format {}, expected "
                        "{:#010x} and an FP4 format",
                        head.magic, static_cast<int>(head.format), kPackedMagic));
    }
    if (head.width != width || head.latent != latent) {
        return data_loss(fmt::format("a packed shard is {} x {}, expected {} x {}", head.width,
                                     head.latent, width, latent));
    }
    const int64_t expected = packed_shard_bytes(head.format, latent, width);
    if (head.size_bytes != expected || std::ssize(bytes) != expected) {
        return data_loss(fmt::format(
            "a packed shard of {} x {} {} has {} bytes and says {}, expected {}", width, latent,
            weight_format_name(head.format), bytes.size(), head.size_bytes, expected));
    }
    Walker walker(bytes.data() + sizeof(head));
    HeldShard shard;
    shard.w1 = walker.view(head, width, latent, head.w1_scale);
    shard.w3 = walker.view(head, width, latent, head.w3_scale);
    shard.w2 = walker.view(head, latent, width, head.w2_scale);
    return shard;
}

uint64_t chunk_hash(std::span<const std::byte> chunk) {
    return wire::hash64(chunk);
}

uint64_t shard_hash(std::span<const uint64_t> chunk_hashes) {
    return wire::hash64(std::as_bytes(chunk_hashes));
}

uint64_t shard_hash(std::span<const std::byte> packed) {
    std::vector<uint64_t> hashes;
    hashes.reserve(static_cast<size_t>(num_shard_chunks(std::ssize(packed))));
    for (size_t at = 0; at < packed.size(); at += kShardChunkBytes) {
        hashes.push_back(
            chunk_hash(packed.subspan(at, std::min<size_t>(kShardChunkBytes, packed.size() - at))));
    }
    return shard_hash(hashes);
}

}  // namespace k3pod
