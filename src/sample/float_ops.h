#pragma once
// The passes over a whole row of logits. Plain loops over fixed lanes, which compilers turn into
// vector code without being allowed to reorder floating point.

#include <cstdint>
#include <span>

namespace k3pod {

// Whether no value is NaN or +inf. -inf is a legitimate "never".
bool is_drawable(std::span<const float> values);

// -inf when empty. No NaN among the values.
float max_of(std::span<const float> values);

// Index of the first value equal to `value`; values.size() when there is none.
int32_t first_index_of(std::span<const float> values, float value);

// out[i] = exp((values[i] - max) * scale), for values up to max: in [0, 1], relative error below
// 1e-6, 0 where the exponent is below -87. `max` is finite, 0 < scale <= 1e5.
void scaled_exp(std::span<const float> values, float max, float scale, std::span<float> out);

// log(sum exp(values[i])), absolute error below 1e-5. `max` is the largest value and finite.
double log_sum_exp(std::span<const float> values, float max);

}  // namespace k3pod
