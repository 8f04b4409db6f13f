#pragma once
// Experts in this process behind an ExpertPort: one store per holder of a placement, summed as the
// station sums the replies of expert servers, but without a wire.

#include <memory>
#include <string>
#include <vector>

#include "k3pod/experts/expert_store.h"
#include "k3pod/model/expert_port.h"
#include "k3pod/placement/placement.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod::testing {

// What is rounded as if a wire lay between.
enum class WireRounding : uint8_t {
    kNone,     // nothing: latents and partial sums stay fp32
    kLatents,  // latents to bf16, partial sums stay fp32
    kBoth,     // latents and every holder's partial sum to bf16
};

struct LocalExpertsOptions {
    int32_t max_rows = 0;
    WireRounding rounding = WireRounding::kBoth;
};

class LocalExperts final : public ExpertPort {
  public:
    static Result<std::unique_ptr<LocalExperts>> load(const Checkpoint& checkpoint,
                                                      const ModelConfig& config, Release release,
                                                      const Placement& placement,
                                                      const LocalExpertsOptions& options);

    // Computes at once; combine only hands out the sum.
    Status dispatch(const RoutedRows& rows) override;
    Status combine(std::span<float> out) override;

  private:
    struct Holder {
        std::unique_ptr<ExpertStore> store;
        std::unique_ptr<ExpertRunner> runner;
        std::vector<wire::WireEntry> entries;  // of the layer in work
    };
    explicit LocalExperts(const Placement& placement) : placement_(placement) {}
    void sort_entries_by_holder(const RoutedRows& rows);
    void run_unrounded(const Holder& holder, const RoutedRows& rows);
    void add_partial();

    Placement placement_;
    LocalExpertsOptions options_;
    std::vector<Holder> holders_;
    std::vector<Bf16> latents_;            // [R, L]
    std::vector<float> partial_;           // [R, L], one holder's sum
    std::vector<float> sum_;               // [R, L]
    std::vector<float> scratch_, output_;  // of one unrounded expert
};

// An even placement of every expert over `num_holders` holders without a budget.
Result<Placement> even_placement(const ModelConfig& config, PlacementMode mode,
                                 int32_t num_holders);

}  // namespace k3pod::testing
