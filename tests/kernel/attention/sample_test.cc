#include "k3pod/kernels/sample.h"

#include <limits>

#include "k3pod/sample/sampler.h"
#include "tests/support/gpu_test.h"
#include "tests/support/random_values.h"

namespace k3pod {
namespace {

using kernels::SampleRow;
using testing::from_gpu;
using testing::poisoned_on_gpu;
using testing::to_gpu;

constexpr float kInf = std::numeric_limits<float>::infinity();

SampleRow row_of(const SamplingParams& params, int64_t position) {
    return {.temperature = params.temperature,
            .top_p = params.top_p,
            .min_p = params.min_p,
            .top_k = params.top_k,
            .presence_penalty = params.presence_penalty,
            .frequency_penalty = params.frequency_penalty,
            .repetition_penalty = params.repetition_penalty,
            .seed = params.seed,
            .position = position};
}

class SampleKernel : public testing::GpuTest {
  protected:
    std::vector<int32_t> draw(const std::vector<SampleRow>& rows, const std::vector<float>& logits,
                              const std::vector<int32_t>& bias_ids = {},
                              const std::vector<float>& bias_values = {},
                              const std::vector<int32_t>& banned = {},
                              int32_t* histories = nullptr) {
        const auto n = static_cast<int32_t>(rows.size());
        const auto vocab = static_cast<int32_t>(logits.size()) / n;
        const auto rows_gpu = to_gpu(rows);
        const auto logits_gpu = to_gpu(logits), values_gpu = to_gpu(bias_values);
        const auto ids_gpu = to_gpu(bias_ids), banned_gpu = to_gpu(banned);
        const auto workspace =
            poisoned_on_gpu<std::byte>(kernels::sample_workspace_bytes(n, vocab));
        const auto ids = poisoned_on_gpu<int32_t>(n);
        const Status done = kernels::sample({.rows = n,
                                             .vocab = vocab,
                                             .logits = logits_gpu.as<float>(),
                                             .params = rows_gpu.as<SampleRow>(),
                                             .bias_ids = ids_gpu.as<int32_t>(),
                                             .bias_values = values_gpu.as<float>(),
                                             .banned = banned_gpu.as<int32_t>(),
                                             .histories = histories,
                                             .workspace = workspace.data(),
                                             .ids = ids.as<int32_t>()},
                                            stream());
        EXPECT_TRUE(done.is_ok()) << done.to_string();
        synchronize();
        return from_gpu<int32_t>(ids);
    }
    testing::RandomValues random;
};

std::vector<SamplingParams> many_params(testing::RandomValues& random) {
    std::vector<SamplingParams> all;
    for (const float temperature : {0.0f, 0.3f, 1.0f, 1.7f}) {
        for (const int32_t top_k : {0, 1, 5, 200}) {
            for (const float top_p : {1.0f, 0.95f, 0.3f}) {
                for (const float min_p : {0.0f, 0.1f}) {
                    SamplingParams params;
                    params.temperature = temperature;
                    params.top_k = top_k;
                    params.top_p = top_p;
                    params.min_p = min_p;
                    params.seed = static_cast<uint64_t>(random.integer(0, 1 << 30));
                    all.push_back(params);
                }
            }
        }
    }
    return all;
}

TEST_F(SampleKernel, draws_the_ids_of_the_cpu_sampler) {
    SCOPED_TRACE(random.trace());
    for (const int32_t vocab : {1, 37, 2304, 163840}) {
        const auto all = many_params(random);
        const auto flat = random.normals(vocab, vocab > 10000 ? 3.0f : 1.0f);
        SamplerWorkspace workspace(vocab);
        std::vector<SampleRow> rows;
        std::vector<float> logits;
        std::vector<int32_t> want;
        for (const SamplingParams& params : all) {
            const int64_t position = random.integer(0, 1000);
            rows.push_back(row_of(params, position));
            logits.insert(logits.end(), flat.begin(), flat.end());
            want.push_back(Sampler(params, {}, workspace).draw(flat, position, {}).value().id);
        }
        EXPECT_EQ(draw(rows, logits), want) << vocab << " ids";
    }
}

TEST_F(SampleKernel, breaks_ties_of_equal_logits_as_the_cpu_does) {
    constexpr int32_t kVocab = 5000;
    std::vector<float> logits(kVocab, 1.0f);
    for (int32_t i = 0; i < kVocab; i += 7) logits[static_cast<size_t>(i)] = 0.5f;
    SamplerWorkspace workspace(kVocab);
    std::vector<SampleRow> rows;
    std::vector<float> all;
    std::vector<int32_t> want;
    for (int64_t position = 0; position < 32; ++position) {
        SamplingParams params;
        params.seed = 11;
        params.top_k = position % 2 == 0 ? 1000 : 0;
        params.top_p = 0.9f;
        rows.push_back(row_of(params, position));
        all.insert(all.end(), logits.begin(), logits.end());
        want.push_back(Sampler(params, {}, workspace).draw(logits, position, {}).value().id);
    }
    EXPECT_EQ(draw(rows, all), want);
}

TEST_F(SampleKernel, penalties_biases_and_bans_follow_a_generation_as_on_the_cpu) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kVocab = 300;
    SamplingParams params;
    params.repetition_penalty = 1.3f;
    params.frequency_penalty = 0.4f;
    params.presence_penalty = 0.7f;
    params.logit_bias = {{3, 2.5f}, {17, -4.0f}};
    params.seed = 5;
    params.top_k = 20;
    const std::vector<int32_t> prompt{1, 2, 3, 2, 250}, banned{7};
    const auto history = poisoned_on_gpu<int32_t>(2 * kVocab);
    const auto prompt_gpu = to_gpu(prompt);
    ASSERT_TRUE(kernels::start_sample_history({.vocab = kVocab,
                                               .history = history.as<int32_t>() + kVocab,
                                               .prompt = prompt_gpu.as<int32_t>(),
                                               .num_prompt = 5},
                                              stream())
                    .is_ok());
    SamplerWorkspace workspace(kVocab);
    Sampler sampler(params, prompt, workspace);
    for (int64_t position = 0; position < 40; ++position) {
        const auto logits = random.normals(kVocab);
        SampleRow row = row_of(params, position);
        row.history = 1;
        row.num_biases = 2;
        row.first_banned = 1;
        row.num_banned = 1;
        const auto got = draw({row}, logits, {3, 17}, {2.5f, -4.0f}, {9, 7}, history.as<int32_t>());
        ASSERT_EQ(got[0], sampler.draw(logits, position, banned).value().id) << position;
    }
}

TEST_F(SampleKernel, marks_rows_that_cannot_be_drawn) {
    const SampleRow row = row_of({}, 0);
    SampleRow padding = row;
    padding.is_padding = 1;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto got = draw({row, row, row, padding},
                          {0, nan, 0, 0, 0, 0, kInf, 0, -kInf, -kInf, -kInf, -kInf, 0, 0, 0, 0});
    EXPECT_EQ(got, (std::vector<int32_t>{kernels::kLogitsNotFiniteId, kernels::kLogitsNotFiniteId,
                                         kernels::kNothingToDrawId, kernels::kPaddingId}));
}

}  // namespace
}  // namespace k3pod
