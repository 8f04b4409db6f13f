#pragma once

namespace k3pod::bench {

// Tokens per second of the bare model in this process, on one thread: `batch` sequences decode
// `steps` tokens each with every expert at hand, no wire, no HTTP. What serving could reach at most
// on one core.
double model_tokens_per_s(int batch, int steps);

}  // namespace k3pod::bench
