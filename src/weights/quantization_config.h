#pragma once
// Reads quantization_config of config.json: which format the file claims for which module.

#include "config_fields.h"
#include "k3pod/weights/model_config.h"

namespace k3pod {

// `root` is config.json, `text` its text_config: the NVFP4 release keeps the section in the former,
// the MXFP4 release in the latter. No section at all is kNone.
QuantizationConfig read_quantization_config(ConfigFields& root, ConfigFields& text);

}  // namespace k3pod
