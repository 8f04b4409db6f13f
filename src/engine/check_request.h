#pragma once

#include "k3pod/engine/generation_service.h"

namespace k3pod {

// Everything about a request that is wrong whatever the engine's state, except its size.
Status check_request(const GenerationRequest& request, int32_t vocab);

}  // namespace k3pod
