#pragma once
// How many bytes a model is, tensor by tensor, from the headers of a checkpoint or from config.json
// alone. Both give the same numbers, so that a pod can be planned before anything is downloaded.

#include <cstdint>
#include <string_view>

#include "k3pod/base/status.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod {

// As in the files.
struct ModelBytes {
    Release release = Release::kNvfp4;
    int64_t num_experts = 0;   // routed, of all layers
    int64_t expert_bytes = 0;  // one of them, scales and scalars included
    int64_t text_bytes = 0;    // the station's part: all that is neither routed expert nor vision
    int64_t vision_bytes = 0;  // tower and projector, which this engine leaves out
    int64_t other_bytes() const { return text_bytes + vision_bytes; }
    int64_t total_bytes() const { return num_experts * expert_bytes + other_bytes(); }
    bool operator==(const ModelBytes&) const = default;
};

// Of a checkpoint that check_model() has accepted as `release`. Reads no tensor.
ModelBytes count_model_bytes(const Checkpoint& checkpoint, const ModelConfig& config,
                             Release release);

// By the shapes that follow from config.json; `text` is the whole file. The formats are those that
// its quantization_config claims; kInvalidArgument names the field when the experts are claimed to
// be neither NVFP4 nor MXFP4. Without a vision_config there is no vision part.
Result<ModelBytes> count_model_bytes(std::string_view text);

// Bytes of one expert in the files of a release.
int64_t expert_file_bytes(const ModelConfig& config, Release release);

}  // namespace k3pod
