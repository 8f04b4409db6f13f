#pragma once
// POST /tokenize and /detokenize.

#include "api/openai/api_context.h"

namespace k3pod {

HttpResponse tokenize(const ApiContext& context, const HttpRequest& request);
HttpResponse detokenize(const ApiContext& context, const HttpRequest& request);

}  // namespace k3pod
