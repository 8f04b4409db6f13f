#include <algorithm>
#include <cmath>

#include "k3pod/ops/kda.h"
#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::poisoned;
using testing::RandomValues;

struct Problem {
    int32_t tokens, heads, dim;
    std::vector<float> q, k, v, log_decay, beta, state;

    int64_t row_floats() const { return int64_t{heads} * dim; }
};

// Rows as kda_normalize_qk leaves them; decays over the whole of (-5, 0) unless limited.
Problem random_problem(int32_t tokens, int32_t heads, int32_t dim, RandomValues& random,
                       float strongest_decay = -5.0f) {
    const int64_t size = int64_t{tokens} * heads * dim;
    Problem p{tokens,
              heads,
              dim,
              random.normals(size),
              random.normals(size),
              random.normals(size),
              random.uniforms(size, strongest_decay, 0.0f),
              random.uniforms(int64_t{tokens} * heads, 0.0f, 1.0f),
              random.normals(int64_t{heads} * dim * dim, 0.1f)};
    kda_normalize_qk(dim, 1e-6f, p.q, p.k);
    return p;
}

// Tokens [begin, end) of the problem from `state` on.
std::vector<float> run(const Problem& p, int32_t begin, int32_t end, std::vector<float>& state) {
    const auto rows = [&](const std::vector<float>& x, int64_t width) {
        return std::span(x).subspan(begin * width, (end - begin) * width);
    };
    auto out = poisoned((end - begin) * p.row_floats());
    kda_recurrence({.tokens = end - begin,
                    .heads = p.heads,
                    .head_dim = p.dim,
                    .q = rows(p.q, p.row_floats()),
                    .k = rows(p.k, p.row_floats()),
                    .v = rows(p.v, p.row_floats()),
                    .log_decay = rows(p.log_decay, p.row_floats()),
                    .beta = rows(p.beta, p.heads),
                    .state = state,
                    .out = out});
    return out;
}

// The recurrence token by token in double. State and outputs of every token.
struct Exact {
    std::vector<double> state, out;
};

Exact exact_recurrence(const Problem& p) {
    const int64_t dim = p.dim;
    Exact exact{{p.state.begin(), p.state.end()}, {}};
    exact.out.resize(p.q.size());
    for (int64_t t = 0; t < p.tokens; ++t) {
        for (int64_t h = 0; h < p.heads; ++h) {
            const int64_t at = (t * p.heads + h) * dim;
            for (int64_t v = 0; v < dim; ++v) {
                double* row = exact.state.data() + (h * dim + v) * dim;
                double predicted = 0;
                for (int64_t i = 0; i < dim; ++i) {
                    row[i] *= std::exp(double{p.log_decay[at + i]});
                    predicted += row[i] * p.k[at + i];
                }
                const double u = p.beta[t * p.heads + h] * (p.v[at + v] - predicted);
                double o = 0;
                for (int64_t i = 0; i < dim; ++i) {
                    row[i] += u * p.k[at + i];
                    o += row[i] * p.q[at + i];
                }
                exact.out[at + v] = o;
            }
        }
    }
    return exact;
}

double relative_error(const std::vector<float>& got, const std::vector<double>& exact) {
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        difference += (got[i] - exact[i]) * (got[i] - exact[i]);
        norm += exact[i] * exact[i];
    }
    return std::sqrt(difference / norm);
}

// fp32 sums over D and over the tokens of a chunk; decays shrink old errors. Chunked factors reach
// e^40 and back, whose exponents carry roundings of 40 * 2^-24.
constexpr double kStepTolerance = 2e-6;
constexpr double kChunkTolerance = 2e-5;

class KdaRecurrence : public EveryTarget {};

TEST_P(KdaRecurrence, single_steps_follow_the_delta_rule) {
    for (const int32_t dim : {16, 48, 128}) {
        const Problem p = random_problem(40, 2, dim, random);
        const Exact exact = exact_recurrence(p);
        auto state = p.state;
        std::vector<float> out;
        for (int32_t t = 0; t < p.tokens; ++t) {
            const auto row = run(p, t, t + 1, state);
            out.insert(out.end(), row.begin(), row.end());
        }
        EXPECT_LT(relative_error(out, exact.out), kStepTolerance) << "D = " << dim;
        EXPECT_LT(relative_error(state, exact.state), kStepTolerance) << "D = " << dim;
    }
}

TEST_P(KdaRecurrence, chunks_follow_the_delta_rule) {
    for (const int32_t dim : {16, 48, 128}) {
        for (const int32_t tokens : {2, 15, 16, 17, 50}) {
            const Problem p = random_problem(tokens, 3, dim, random);
            const Exact exact = exact_recurrence(p);
            auto state = p.state;
            const auto out = run(p, 0, tokens, state);
            EXPECT_LT(relative_error(out, exact.out), kChunkTolerance) << dim << " x " << tokens;
            EXPECT_LT(relative_error(state, exact.state), kChunkTolerance)
                << dim << " x " << tokens;
        }
    }
}

TEST_P(KdaRecurrence, chunks_stay_exact_at_the_strongest_decay) {
    Problem p = random_problem(32, 1, 128, random);
    std::fill(p.log_decay.begin(), p.log_decay.end(), -5.0f);
    const Exact exact = exact_recurrence(p);
    auto state = p.state;
    const auto out = run(p, 0, 32, state);
    EXPECT_LT(relative_error(out, exact.out), kChunkTolerance);
    EXPECT_LT(relative_error(state, exact.state), kChunkTolerance);
}

TEST_P(KdaRecurrence, remembers_over_many_tokens_without_drift) {
    const Problem p = random_problem(1024, 1, 128, random, -0.02f);
    const Exact exact = exact_recurrence(p);
    auto state = p.state;
    const auto out = run(p, 0, p.tokens, state);
    EXPECT_LT(relative_error(state, exact.state), 1e-4);
    EXPECT_LT(relative_error(out, exact.out), 1e-4);
}

TEST_P(KdaRecurrence, cut_at_multiples_of_a_chunk_gives_the_same_bits) {
    const Problem p = random_problem(65, 2, 64, random);
    auto whole_state = p.state;
    const auto whole = run(p, 0, 65, whole_state);
    auto state = p.state;
    std::vector<float> parts;
    for (const auto& [begin, end] : {std::pair{0, 16}, {16, 48}, {48, 64}, {64, 65}}) {
        const auto part = run(p, begin, end, state);
        parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole);
    EXPECT_EQ(state, whole_state);
}

TEST_P(KdaRecurrence, may_write_over_v) {
    const Problem p = random_problem(19, 2, 32, random);
    auto state = p.state;
    const auto apart = run(p, 0, 19, state);
    auto v = p.v;
    state = p.state;
    kda_recurrence({.tokens = 19,
                    .heads = 2,
                    .head_dim = 32,
                    .q = p.q,
                    .k = p.k,
                    .v = v,
                    .log_decay = p.log_decay,
                    .beta = p.beta,
                    .state = state,
                    .out = v});
    EXPECT_EQ(v, apart);
}

TEST_P(KdaRecurrence, heads_do_not_touch_each_other) {
    const Problem p = random_problem(5, 2, 16, random);
    auto state = p.state;
    const auto both = run(p, 0, 5, state);
    Problem changed = p;
    for (int64_t t = 0; t < 5; ++t) {
        for (int64_t i = 0; i < 16; ++i) changed.v[(t * 2 + 1) * 16 + i] += 1.0f;
    }
    auto changed_state = p.state;
    const auto other = run(changed, 0, 5, changed_state);
    for (int64_t t = 0; t < 5; ++t) {
        for (int64_t i = 0; i < 16; ++i) ASSERT_EQ(both[t * 32 + i], other[t * 32 + i]);
    }
    EXPECT_TRUE(std::equal(state.begin(), state.begin() + 256, changed_state.begin()));
    EXPECT_NE(state, changed_state);
}

K3POD_ON_EVERY_TARGET(KdaRecurrence);

}  // namespace
}  // namespace k3pod::ops
