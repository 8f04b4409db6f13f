#pragma once
// Comparing the engine with the fp64 reference: the bounds, what is recorded of a run, and the
// checks.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tests/support/golden_cases.h"
#include "tests/support/tiny_model.h"

namespace k3pod::testing {

inline constexpr float kNormBound = 1e-3f;    // relative, L2 norm of the accumulator
inline constexpr float kLogitBound = 3e-3f;   // of the largest absolute logit
inline constexpr float kWeightBound = 2e-3f;  // absolute, routing weights
inline constexpr float kDecisiveGap = 0.25f;  // between the two best logits

inline const std::filesystem::path kTinyDir = K3POD_SOURCE_DIR "/models/k3-tiny";

// The ten cases; a failure of the test when they cannot be read.
std::vector<GoldenCase> golden_cases();

struct PlacementCase {
    PlacementMode mode;
    int32_t num_holders;
};
std::string placement_name(const PlacementCase& placement);  // "sliced_over_3"

// What the layers did to every row of one step.
class LayerTrace final : public ForwardProbe {
  public:
    // Borrows tiny, for the router's biases.
    explicit LayerTrace(const TinyModel& tiny) : tiny_(tiny) {}

    void on_layer(int32_t layer, std::span<const float> accumulator) override;
    void on_routing(int32_t layer, const RoutingView& routing) override;

    struct Routing {
        int32_t layer;
        std::vector<uint16_t> experts;  // [K], heaviest first
        std::vector<float> weights;     // [K]
        // By how much the last expert chosen beat the first one not chosen, in selection score.
        float margin;
    };
    size_t num_rows() const { return norms_[0].size(); }
    float norm(size_t layer, size_t row) const { return norms_[layer][row]; }
    // Of the MoE layer with this index among MoE layers.
    const Routing& routing(size_t moe_layer, size_t row) const { return routing_[moe_layer][row]; }
    size_t num_moe_layers() const { return routing_.size(); }

  private:
    const TinyModel& tiny_;
    std::vector<std::vector<float>> norms_;      // [layer][row]
    std::vector<std::vector<Routing>> routing_;  // [MoE layer][row]
};

int32_t argmax(std::span<const float> logits);
float top2_gap(std::span<const float> logits);
float largest_magnitude(std::span<const float> values);
float largest_difference(std::span<const float> a, std::span<const float> b);

// The last row of `trace` in the layers below `end_layer`, within `slack` times the bounds.
void expect_layers(const GoldenCase& expected, const LayerTrace& trace, int32_t end_layer,
                   float slack = 1);
// Logits of the last prompt position, likewise.
void expect_top_logits(const GoldenCase& expected, std::span<const float> logits, float slack = 1);
// Walks the reference's greedy path, so that one undecided token does not hide those behind it; the
// engine would walk it too, for every decided token is its own choice.
void expect_greedy(TinyModel& tiny, const std::vector<GoldenCase>& cases);

}  // namespace k3pod::testing
