#include "model/cuda/expert_exchange.h"

#include <algorithm>
#include <utility>

#include "k3pod/base/bf16.h"

namespace k3pod {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kOnlyPart = 0;  // a port gives the sum over all holders
// Between two looks at whether the GPU's work failed instead of taking long.
constexpr Nanoseconds kLookInterval = milliseconds(200);
// No layer of any step takes a GPU this long.
constexpr Nanoseconds kLayerLimit = std::chrono::seconds(60);

}  // namespace

Result<std::unique_ptr<ExpertExchange>> ExpertExchange::create(const ModelConfig& config,
                                                               int32_t max_rows) {
    const HandOffShape shape{.max_rows = max_rows,
                             .latent = config.latent,
                             .top_k = config.top_k,
                             .num_exchanges = config.num_moe_layers(),
                             .num_parts = 1};
    const int64_t shared_bytes = hand_off_layout(shape).size_bytes;
    K3POD_ASSIGN(PinnedBuffer shared, PinnedBuffer::create(shared_bytes));
    K3POD_ASSIGN(DeviceBuffer state, DeviceBuffer::create(kernels::hand_off_state_bytes()));
    K3POD_TRY(fill_device(state.data(), 0, state.size_bytes()));
    std::unique_ptr<ExpertExchange> exchange(
        new ExpertExchange(config, std::move(shared), std::move(state)));
    const std::span<std::byte> memory(exchange->shared_.data(), static_cast<size_t>(shared_bytes));
    K3POD_ASSIGN(exchange->hand_off_, HandOff::create(shape, memory, exchange->clock_));
    exchange->link_ = {.shape = shape, .shared = memory.data(), .state = exchange->state_.data()};
    exchange->latents_.resize(static_cast<size_t>(int64_t{max_rows} * config.latent));
    return exchange;
}

ExpertExchange::ExpertExchange(const ModelConfig& config, PinnedBuffer shared, DeviceBuffer state)
    : first_layer_(config.first_dense_layers),
      latent_(config.latent),
      top_k_(config.top_k),
      shared_(std::move(shared)),
      state_(std::move(state)) {}

Status ExpertExchange::serve(int32_t moe_layer, ExpertPort& experts, const DeviceStream& stream) {
    K3POD_ASSIGN(const HandOffRequest request, wait_request(moe_layer, stream));
    const std::span<float> latents = std::span(latents_).first(request.latents.size());
    std::ranges::transform(request.latents, latents.begin(), [](Bf16 x) { return to_f32(x); });
    K3POD_TRY(experts.dispatch({.step = step_,
                                .layer = first_layer_ + moe_layer,
                                .rows = request.rows,
                                .latent = latent_,
                                .top_k = top_k_,
                                .latents = latents,
                                .experts = request.experts,
                                .weights = request.weights}));
    K3POD_TRY(experts.combine(hand_off_->part_f32(request, kOnlyPart)));
    hand_off_->complete(request, kOnlyPart, PartFormat::kF32);
    return Status::ok();
}

Result<HandOffRequest> ExpertExchange::wait_request(int32_t moe_layer,
                                                    const DeviceStream& stream) const {
    const TimePoint limit = clock_.now() + kLayerLimit;
    for (;;) {
        const TimePoint now = clock_.now();
        Result<HandOffRequest> request =
            hand_off_->wait_request(moe_layer, std::min(limit, now + kLookInterval));
        const bool is_late = request.status().code() == Code::kDeadlineExceeded;
        if (request.is_ok() || !is_late || now >= limit) return request;
        // Ok would mean that the GPU finished without asking; that is the deadline's to report.
        const Status work = stream.poll();
        if (!work.is_ok() && work.code() != Code::kUnavailable) return work;
    }
}

}  // namespace k3pod
