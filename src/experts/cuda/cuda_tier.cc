#include "experts/cuda/cuda_tier.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "experts/check_frame.h"
#include "experts/cuda/device_shards.h"
#include "experts/load_shards.h"
#include "k3pod/base/check.h"
#include "k3pod/base/clock.h"
#include "k3pod/device/cuda.h"
#include "k3pod/kernels/expert_frame.h"
#include "k3pod/kernels/experts.h"
#include "k3pod/kernels/support.h"

namespace k3pod {
namespace {

constexpr int32_t kGpu = 0;
// Far above any frame; a GPU that needs longer hangs.
constexpr Nanoseconds kFrameLimit = std::chrono::seconds(30);
// Polls of the word between two looks at clock and stream.
constexpr int kPollsPerLook = 4096;
constexpr Nanoseconds kYieldAfter = std::chrono::microseconds(500);

int64_t latents_bytes(const kernels::ExpertFrameArgs& frame) {
    return wire::request_payload_bytes(frame.latent, frame.max_rows, 0);
}
int64_t entries_bytes(const kernels::ExpertFrameArgs& frame) {
    return frame.max_entries * int64_t{sizeof(wire::WireEntry)};
}
int64_t sums_bytes(const kernels::ExpertFrameArgs& frame) {
    return wire::reply_payload_bytes(frame.latent, frame.max_rows, /*f32=*/true);
}

class CudaTier final : public ExpertTier {
  public:
    CudaTier(std::unique_ptr<DeviceShards> shards, const ModelConfig& config, int32_t max_rows)
        : shards_(std::move(shards)),
          first_moe_layer_(config.first_dense_layers),
          bounds_{max_rows, config.top_k} {
        frame_.max_rows = max_rows;
        frame_.max_entries = static_cast<int32_t>(bounds_.max_entries());
        frame_.latent = config.latent;
        experts_.beta = config.situ_beta;
        experts_.linear_beta = config.situ_linear_beta;
    }

    Status start();
    Status run(int32_t layer, int32_t rows, std::span<const Bf16> latents,
               std::span<const wire::WireEntry> entries, std::span<float> out) override;
    int64_t size_bytes() const override { return shards_->size_bytes(); }
    int64_t num_shards() const override { return shards_->num_shards(); }
    int64_t num_nvfp4_shards() const override { return shards_->num_nvfp4_shards(); }

  private:
    Status allocate();
    Status record(CudaStream stream) const;
    Status check_held(int32_t layer, std::span<const wire::WireEntry> entries) const;
    Status work(kernels::ExpertTicket ticket);
    Status wait();

    std::unique_ptr<DeviceShards> shards_;
    int32_t first_moe_layer_;
    FrameBounds bounds_;
    uint64_t num_frames_ = 0;
    Status failure_;  // of the device: nothing works any more

    // Pinned: the frame as the host sees it.
    PinnedBuffer ticket_, done_, latents_, entries_, sums_;
    // Device: the frame as the kernels see it.
    DeviceBuffer frame_ticket_, frame_latents_, frame_entries_, frame_sums_, arrivals_, workspace_;
    kernels::ExpertFrameArgs frame_;
    kernels::GroupedExpertsArgs experts_;
    DeviceStream stream_;
    DeviceGraph graph_;
};

Status CudaTier::allocate() {
    K3POD_ASSIGN(ticket_, PinnedBuffer::create(sizeof(kernels::ExpertTicket)));
    K3POD_ASSIGN(done_, PinnedBuffer::create(sizeof(uint64_t)));
    K3POD_ASSIGN(latents_, PinnedBuffer::create(latents_bytes(frame_)));
    K3POD_ASSIGN(entries_, PinnedBuffer::create(entries_bytes(frame_)));
    K3POD_ASSIGN(sums_, PinnedBuffer::create(sums_bytes(frame_)));
    K3POD_ASSIGN(frame_ticket_, DeviceBuffer::create(sizeof(kernels::ExpertTicket)));
    K3POD_ASSIGN(frame_latents_, DeviceBuffer::create(latents_bytes(frame_)));
    K3POD_ASSIGN(frame_entries_, DeviceBuffer::create(entries_bytes(frame_)));
    K3POD_ASSIGN(frame_sums_, DeviceBuffer::create(sums_bytes(frame_)));
    K3POD_ASSIGN(arrivals_, DeviceBuffer::create(sizeof(uint32_t)));
    K3POD_ASSIGN(workspace_, DeviceBuffer::create(kernels::grouped_experts_workspace_bytes(
                                 shards_->table(), frame_.max_rows, frame_.max_entries)));
    K3POD_TRY(fill_device(arrivals_.data(), 0, arrivals_.size_bytes(), stream_.get()));
    return fill_device(workspace_.data(), 0, workspace_.size_bytes(), stream_.get());
}

Status CudaTier::start() {
    if (shards_->num_shards() == 0) return Status::ok();  // run() never gets as far as the GPU
    K3POD_ASSIGN(stream_, DeviceStream::create());
    K3POD_TRY(allocate());
    frame_.ticket = ticket_.as<const kernels::ExpertTicket>();
    frame_.done = done_.as<uint64_t>();
    frame_.frame = frame_ticket_.as<kernels::ExpertTicket>();
    frame_.latents = frame_latents_.as<Bf16>();
    frame_.entries = frame_entries_.as<wire::WireEntry>();
    frame_.out = frame_sums_.as<float>();
    frame_.arrivals = arrivals_.as<uint32_t>();
    experts_.table = shards_->table();
    experts_.max_rows = frame_.max_rows;
    experts_.max_entries = frame_.max_entries;
    experts_.layer = &frame_.frame->layer;
    experts_.num_rows = &frame_.frame->rows;
    experts_.num_entries = &frame_.frame->num_entries;
    experts_.latents = frame_.latents;
    experts_.entries = frame_.entries;
    experts_.workspace = workspace_.data();
    experts_.out = frame_.out;
    K3POD_TRY(stream_.synchronize());
    K3POD_ASSIGN(graph_, DeviceGraph::capture(
                             stream_.get(), [this](CudaStream stream) { return record(stream); }));
    // An empty frame: what a graph's first launch brings onto the GPU must not come while a step
    // waits there for this tier.
    return work({});
}

Status CudaTier::record(CudaStream stream) const {
    K3POD_TRY(kernels::expert_frame_in(frame_, stream));
    K3POD_TRY(kernels::grouped_experts(experts_, stream));
    return kernels::expert_frame_out(frame_, stream);
}

Status CudaTier::check_held(int32_t layer, std::span<const wire::WireEntry> entries) const {
    for (const wire::WireEntry& entry : entries) {
        if (!shards_->holds(layer - first_moe_layer_, entry.expert)) {
            return expert_not_held(layer, entry.expert);
        }
    }
    return Status::ok();
}

Status CudaTier::run(int32_t layer, int32_t rows, std::span<const Bf16> latents,
                     std::span<const wire::WireEntry> entries, std::span<float> out) {
    K3POD_TRY(failure_);
    K3POD_TRY(check_frame(bounds_, rows, entries));
    K3POD_TRY(check_held(layer, entries));
    const auto values = static_cast<size_t>(int64_t{rows} * frame_.latent);
    K3POD_CHECK(latents.size() == values && out.size() == values,
                "latents and out must be [rows, L]");
    if (entries.empty()) {
        std::ranges::fill(out, 0.0f);
        return Status::ok();
    }
    std::ranges::copy(latents, latents_.as<Bf16>());
    std::ranges::copy(entries, entries_.as<wire::WireEntry>());
    failure_ = work({.latents = latents_.as<const Bf16>(),
                     .entries = entries_.as<const wire::WireEntry>(),
                     .out = sums_.as<float>(),
                     .layer = layer - first_moe_layer_,
                     .rows = rows,
                     .num_entries = static_cast<int32_t>(entries.size())});
    if (!failure_.is_ok()) return failure_.with_context(fmt::format("layer {}", layer));
    std::copy_n(sums_.as<const float>(), values, out.begin());
    return Status::ok();
}

Status CudaTier::work(kernels::ExpertTicket ticket) {
    ticket.number = ++num_frames_;
    *ticket_.as<kernels::ExpertTicket>() = ticket;
    K3POD_TRY(use_cuda_device(kGpu));
    K3POD_TRY(graph_.launch(stream_.get()));
    return wait();
}

Status CudaTier::wait() {
    const std::atomic_ref done(*done_.as<uint64_t>());
    const SteadyClock clock;
    const TimePoint start = clock.now();
    while (true) {
        for (int i = 0; i < kPollsPerLook; ++i) {
            if (done.load(std::memory_order_acquire) == num_frames_) return Status::ok();
        }
        const Status state = stream_.poll();
        if (state.is_ok()) {
            if (done.load(std::memory_order_acquire) == num_frames_) return Status::ok();
            return internal_error("the GPU finished a frame without saying so");
        }
        if (state.code() != Code::kUnavailable) return state;
        const Nanoseconds waited = clock.now() - start;
        if (waited > kFrameLimit) {
            return internal_error(
                fmt::format("the GPU did not finish a frame within {:.0f} s; see whether it hangs "
                            "(nvidia-smi, dmesg) and restart this node",
                            to_seconds(kFrameLimit)));
        }
        if (waited > kYieldAfter) sched_yield();
    }
}

// Packed bytes wait in host memory for their way to the GPU, a few shards at a time.
class CudaBuilder final : public TierBuilder {
  public:
    CudaBuilder(std::unique_ptr<DeviceShards> device_shards, const ModelConfig& config,
                std::vector<Shard> shards, int32_t max_rows)
        : device_shards_(std::move(device_shards)),
          config_(config),
          shards_(std::move(shards)),
          max_rows_(max_rows) {}

    Result<std::span<std::byte>> room(size_t shard, int64_t packed_bytes) override {
        const Shard& placed = shards_[shard];
        const int64_t most_bytes =
            packed_shard_bytes(WeightFormat::kNvfp4, config_.latent, placed.end - placed.begin);
        if (packed_bytes > most_bytes) {
            return resource_exhausted(fmt::format("{} takes {} bytes, it has at most {}",
                                                  describe(placed), packed_bytes, most_bytes));
        }
        HostBuffer& buffer = waiting_[shard];
        if (buffer.size_bytes() != packed_bytes) buffer = HostBuffer(packed_bytes);
        return std::span(buffer.data(), static_cast<size_t>(packed_bytes));
    }

    Status finish(size_t shard) override {
        const Shard& placed = shards_[shard];
        const HostBuffer& buffer = waiting_[shard];
        const auto held =
            open_packed_shard({buffer.data(), static_cast<size_t>(buffer.size_bytes())},
                              config_.latent, placed.end - placed.begin);
        if (!held.is_ok()) return held.status().with_context(describe(placed));
        K3POD_TRY(use_cuda_device(kGpu));
        K3POD_TRY(device_shards_->add(placed, *held));
        waiting_.erase(shard);
        return Status::ok();
    }

    Result<std::unique_ptr<ExpertTier>> build() override {
        K3POD_CHECK(device_shards_->num_shards() == std::ssize(shards_),
                    "a tier is built when every shard is there");
        K3POD_TRY(use_cuda_device(kGpu));
        K3POD_TRY(device_shards_->seal());
        auto tier = std::make_unique<CudaTier>(std::move(device_shards_), config_, max_rows_);
        K3POD_TRY(tier->start());
        return std::unique_ptr<ExpertTier>(std::move(tier));
    }

  private:
    std::unique_ptr<DeviceShards> device_shards_;
    const ModelConfig config_;
    const std::vector<Shard> shards_;
    const int32_t max_rows_;
    std::map<size_t, HostBuffer> waiting_;
};

}  // namespace

Result<CudaProperties> usable_gpu() {
    K3POD_ASSIGN(CudaProperties gpu, cuda_properties(kGpu));
    K3POD_TRY(kernels::check_gpu_supported(kGpu));
    return gpu;
}

Result<std::unique_ptr<TierBuilder>> make_cuda_builder(const ModelConfig& config, Release release,
                                                       std::span<const Shard> shards,
                                                       int32_t max_rows) {
    K3POD_TRY(usable_gpu().status());
    K3POD_TRY(use_cuda_device(kGpu));
    K3POD_ASSIGN(auto device_shards, DeviceShards::create(config, release, shards));
    return std::unique_ptr<TierBuilder>(
        std::make_unique<CudaBuilder>(std::move(device_shards), config,
                                      std::vector<Shard>(shards.begin(), shards.end()), max_rows));
}

}  // namespace k3pod
