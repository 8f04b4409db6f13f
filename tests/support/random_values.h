#pragma once
// Random test input with a fresh seed for each run, printed when a test fails. K3POD_TEST_SEED=N in
// the environment repeats a run.

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace k3pod::testing {

inline uint64_t fresh_seed() {
    if (const char* fixed = std::getenv("K3POD_TEST_SEED"))
        return std::strtoull(fixed, nullptr, 10);
    return std::random_device()();
}

class RandomValues {
  public:
    explicit RandomValues(uint64_t seed = fresh_seed()) : seed_(seed), generator_(seed) {}

    // For SCOPED_TRACE.
    std::string trace() const { return "K3POD_TEST_SEED=" + std::to_string(seed_); }

    float normal(float deviation = 1.0f) {
        return std::normal_distribution<float>(0.0f, deviation)(generator_);
    }
    float uniform(float low, float high) {
        return std::uniform_real_distribution<float>(low, high)(generator_);
    }
    // In [low, high].
    int32_t integer(int32_t low, int32_t high) {
        return std::uniform_int_distribution<int32_t>(low, high)(generator_);
    }
    std::vector<float> normals(int64_t n, float deviation = 1.0f) {
        std::vector<float> values(static_cast<size_t>(n));
        for (float& v : values) v = normal(deviation);
        return values;
    }
    std::vector<float> uniforms(int64_t n, float low, float high) {
        std::vector<float> values(static_cast<size_t>(n));
        for (float& v : values) v = uniform(low, high);
        return values;
    }

  private:
    uint64_t seed_;
    std::mt19937_64 generator_;
};

}  // namespace k3pod::testing
