#pragma once
// Kimi-K3's forward pass on the station: embedding, AttnRes, KDA, gated MLA, latent MoE, head.
// Formulas: docs/model.md, which follows the released architecture.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/model/expert_port.h"
#include "k3pod/state/state_store.h"
#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod {

// Consecutive tokens of one sequence in this step: one for a decode step, more for a prefill chunk.
struct SequenceChunk {
    const SequenceState* state =
        nullptr;                   // slot and pages; pages cover position + ids.size() tokens
    int32_t position = 0;          // tokens of the sequence already in the state
    std::span<const int32_t> ids;  // [T_chunk], each in [0, V)
    enum class Logits : uint8_t { kNone, kLast, kAll } logits = Logits::kLast;
};

// All chunks of one step. A sequence appears at most once.
struct ModelStep {
    uint64_t step = 0;
    std::span<const SequenceChunk> chunks;
};

struct RoutingView {
    std::span<const float> logits;      // [T, E]
    std::span<const uint16_t> experts;  // [T, K], best selection score first
    std::span<const float> weights;     // [T, K]
};

// Watches a forward pass; for tests and diagnosis. Called on the step thread.
class ForwardProbe {
  public:
    virtual ~ForwardProbe() = default;
    // accumulator: [T, H] fp32, the AttnRes prefix after the layer's MLP add.
    virtual void on_layer(int32_t layer, std::span<const float> accumulator) = 0;
    // What the router of a MoE layer decided.
    virtual void on_routing(int32_t layer, const RoutingView& routing) = 0;
};

// Shape of the state that sequences of this model need.
StateShape state_shape(const ModelConfig& config, int32_t num_slots, int32_t num_pages);

class Model {
  public:
    // Borrows weights and state, which must outlive it. max_rows bounds the tokens of one step;
    // every work buffer is allocated here.
    static Result<std::unique_ptr<Model>> create(const ModelConfig& config,
                                                 const StationWeights& weights, StateStore& state,
                                                 int32_t max_rows);
    virtual ~Model() = default;

    // Runs one step and advances the state of every chunk's sequence. logits receives [N, V] fp32,
    // N = rows asked for by the chunks in order. The result of a row does not depend on what else
    // is in the step, and a prompt split at multiples of kPrefillAlignment gives the same bits as
    // one whole. On error the states of the chunks are unusable (release them or replay from
    // position 0).
    virtual Status forward(const ModelStep& step, ExpertPort& experts, std::span<float> logits,
                           ForwardProbe* probe = nullptr) = 0;
};

// Prefill chunks must start at a multiple of this for bit-equal results (KDA's chunk length).
inline constexpr int32_t kPrefillAlignment = 16;

}  // namespace k3pod
