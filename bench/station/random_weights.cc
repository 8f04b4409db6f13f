#include "bench/station/random_weights.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "k3pod/base/bf16.h"

namespace k3pod::bench {
namespace {

constexpr int64_t kBlockBytes = int64_t{32} << 20;
constexpr float kDeviation = 0.012f;  // of BF16 weights: 1 / sqrt(7168)
constexpr float kTileScale = 0.016f;  // of E4M3 weights, whose bytes below lie within +-1.875
constexpr uint8_t kSmallE4m3 = 0xbf;  // clears the top bit of the exponent: no NaN either

Result<DeviceBuffer> on_device(const std::vector<std::byte>& block) {
    K3POD_ASSIGN(DeviceBuffer buffer, DeviceBuffer::create(std::ssize(block)));
    K3POD_TRY(copy_to_device(buffer.data(), block.data(), std::ssize(block)));
    return buffer;
}

Status repeat(std::byte* to, int64_t bytes, const DeviceBuffer& block) {
    for (int64_t at = 0; at < bytes; at += block.size_bytes()) {
        K3POD_TRY(copy_on_device(to + at, block.data(), std::min(bytes - at, block.size_bytes())));
    }
    return Status::ok();
}

}  // namespace

Result<RandomWeights> RandomWeights::create() {
    std::mt19937 random(20261130);
    std::vector<std::byte> block(static_cast<size_t>(kBlockBytes));
    RandomWeights weights;

    std::normal_distribution<float> value(0, kDeviation);
    for (size_t i = 0; i < block.size(); i += sizeof(Bf16)) {
        const Bf16 weight = to_bf16(value(random));
        std::memcpy(&block[i], &weight, sizeof weight);
    }
    K3POD_ASSIGN(weights.bf16_, on_device(block));

    for (std::byte& byte : block) byte = static_cast<std::byte>(random() & kSmallE4m3);
    K3POD_ASSIGN(weights.e4m3_, on_device(block));

    for (size_t i = 0; i < block.size(); i += sizeof kTileScale)
        std::memcpy(&block[i], &kTileScale, sizeof kTileScale);
    K3POD_ASSIGN(weights.scales_, on_device(block));
    return weights;
}

Status RandomWeights::write(const MatrixView& device) const {
    auto* const data = const_cast<std::byte*>(device.data);
    auto* const scales = const_cast<std::byte*>(device.scales);
    const int64_t bytes = matrix_data_bytes(device.format, device.rows, device.cols);
    switch (device.format) {
        case WeightFormat::kBf16:
            return fill_bf16(data, bytes);
        case WeightFormat::kFp8Tile:
            K3POD_TRY(repeat(data, bytes, e4m3_));
            return repeat(scales, matrix_scale_bytes(device.format, device.rows, device.cols),
                          scales_);
        case WeightFormat::kF32:
        case WeightFormat::kNvfp4:
        case WeightFormat::kMxfp4:
            break;
    }
    return invalid_argument(std::string("random weights of format ") +
                            weight_format_name(device.format) + " are not made here");
}

Status RandomWeights::fill_bf16(std::byte* device, int64_t bytes) const {
    return repeat(device, bytes, bf16_);
}

}  // namespace k3pod::bench
