#include "model/cuda/kernel_clock.h"

#include <array>
#include <utility>

namespace k3pod {
namespace {

constexpr std::array<const char*, kNumKernelKinds> kKindNames = {
    "input",         "attn_res",      "kda_projections", "kda_core", "mla_projections",
    "mla_attention", "attention_out", "router",          "dispatch", "shared_experts",
    "combine",       "latent_up",     "dense_mlp",       "head"};

}  // namespace

Status KernelClock::start(CudaStream stream) {
    marks_.clear();
    return mark(KernelKind::kInput, stream);
}

Status KernelClock::mark(KernelKind kind, CudaStream stream) {
    K3POD_ASSIGN(DeviceEvent event, DeviceEvent::create());
    K3POD_TRY(event.record(stream));
    marks_.push_back({kind, std::move(event)});
    return Status::ok();
}

Result<std::vector<KernelTime>> KernelClock::read() const {
    std::vector<KernelTime> times;
    for (const char* name : kKindNames) times.push_back({name, 0, 0});
    for (size_t i = 1; i < marks_.size(); ++i) {
        K3POD_ASSIGN(const double us, marks_[i].event.microseconds_since(marks_[i - 1].event));
        KernelTime& time = times[static_cast<size_t>(marks_[i].kind)];
        ++time.launches;
        time.microseconds += us;
    }
    return times;
}

}  // namespace k3pod
