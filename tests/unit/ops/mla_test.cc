#include "k3pod/ops/mla.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/weight_matrices.h"
#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::f32_sum_tolerance;
using testing::poisoned;
using testing::RandomValues;

constexpr MlaShape kShape{.heads = 3, .nope = 128, .rope = 64, .value = 128, .rank = 512};
constexpr MlaShape kSmall{.heads = 5, .nope = 24, .rope = 12, .value = 40, .rank = 48};
constexpr int32_t kPageTokens = 32;

// Pages that lie apart and out of order in memory; unwritten rows are NaN.
class Cache {
  public:
    Cache(const MlaShape& shape, int32_t tokens) : width_(shape.cache_width()) {
        const size_t num_pages = static_cast<size_t>((tokens + kPageTokens - 1) / kPageTokens);
        const Bf16 nan = to_bf16(std::nanf(""));
        storage_.assign(num_pages, std::vector<Bf16>(size_t{kPageTokens} * width_, nan));
        for (size_t p = 0; p < num_pages; ++p) {
            auto& page = storage_[num_pages - 1 - p];
            writable_.push_back(page);
            readable_.push_back(page);
        }
    }
    MlaCacheWriter writer() { return {writable_, kPageTokens}; }
    MlaCacheView view() const { return {readable_, kPageTokens}; }
    std::span<Bf16> row(int32_t position) {
        return writable_[static_cast<size_t>(position / kPageTokens)].subspan(
            static_cast<size_t>(position % kPageTokens) * width_, width_);
    }
    double at(int32_t position, int64_t i) { return to_f32(row(position)[static_cast<size_t>(i)]); }
    void fill(int32_t tokens, RandomValues& random) {
        for (int32_t t = 0; t < tokens; ++t) {
            for (Bf16& v : row(t)) v = to_bf16(random.normal());
        }
    }

  private:
    size_t width_;
    std::vector<std::vector<Bf16>> storage_;
    std::vector<std::span<Bf16>> writable_;
    std::vector<std::span<const Bf16>> readable_;
};

std::vector<float> attend(const MlaShape& shape, const Cache& cache, int32_t position,
                          int32_t tokens, std::span<const float> latent_q) {
    auto out = poisoned(int64_t{tokens} * shape.heads * shape.rank);
    mla_attend({.shape = shape,
                .tokens = tokens,
                .position = position,
                .latent_q = latent_q,
                .scale = 1.0f / std::sqrt(static_cast<float>(shape.query_width())),
                .cache = cache.view(),
                .latent_out = out});
    return out;
}

class Mla : public EveryTarget {};

TEST_P(Mla, writes_normed_latents_and_raw_keys_across_pages) {
    constexpr int32_t kTokens = 5;
    constexpr int32_t kPosition = 29;  // the second page begins at 32
    Cache cache(kSmall, 64);
    const int64_t width = kSmall.cache_width();
    const auto kv = random.normals(kTokens * width);
    const auto weight = random.normals(kSmall.rank);
    mla_write_latents({.shape = kSmall,
                       .tokens = kTokens,
                       .position = kPosition,
                       .kv = kv,
                       .norm_weight = weight,
                       .eps = 1e-6f,
                       .cache = cache.writer()});
    for (int32_t t = 0; t < kTokens; ++t) {
        const float* row = kv.data() + t * width;
        double squares = 0;
        for (int64_t i = 0; i < kSmall.rank; ++i) squares += double{row[i]} * row[i];
        const double scale = 1.0 / std::sqrt(squares / kSmall.rank + 1e-6);
        for (int64_t i = 0; i < width; ++i) {
            const double exact = i < kSmall.rank ? row[i] * scale * weight[i] : row[i];
            ASSERT_NEAR(cache.at(kPosition + t, i), exact,
                        testing::kBf16Rounding * 1.01 * std::abs(exact))
                << "token " << t << " value " << i;
        }
    }
    EXPECT_TRUE(std::isnan(cache.at(kPosition - 1, 0))) << "wrote before the first position";
    EXPECT_TRUE(std::isnan(cache.at(kPosition + kTokens, 0))) << "wrote past the last position";
}

TEST_P(Mla, attends_to_itself_and_everything_before) {
    for (const MlaShape& shape : {kShape, kSmall}) {
        for (const int32_t position : {0, 1, 14, 15, 16, 17, 63, 64, 100}) {
            Cache cache(shape, position + 1);
            cache.fill(position + 1, random);
            const auto q = random.normals(int64_t{shape.heads} * shape.cache_width());
            const auto out = attend(shape, cache, position, 1, q);
            for (int64_t h = 0; h < shape.heads; ++h) {
                std::vector<double> p;
                double sum = 0;
                for (int32_t s = 0; s <= position; ++s) {
                    double score = 0;
                    for (int64_t i = 0; i < shape.cache_width(); ++i) {
                        score += q[h * shape.cache_width() + i] * cache.at(s, i);
                    }
                    p.push_back(std::exp(score / std::sqrt(shape.query_width())));
                    sum += p.back();
                }
                for (int64_t i = 0; i < shape.rank; ++i) {
                    double exact = 0;
                    double magnitude = 0;
                    for (int32_t s = 0; s <= position; ++s) {
                        exact += p[s] / sum * cache.at(s, i);
                        magnitude += p[s] / sum * std::abs(cache.at(s, i));
                    }
                    // A probability carries the error of its score, whose terms add up to about 40.
                    ASSERT_NEAR(out[h * shape.rank + i], exact,
                                f32_sum_tolerance(shape.cache_width(), 10 * magnitude))
                        << "position " << position << " head " << h;
                }
            }
        }
    }
}

TEST_P(Mla, gives_a_token_the_same_bits_alone_and_in_any_chunk) {
    constexpr int32_t kTokens = 45;
    constexpr int32_t kPosition = 7;
    Cache cache(kShape, kPosition + kTokens);
    cache.fill(kPosition + kTokens, random);
    const int64_t q_row = kShape.heads * kShape.cache_width();
    const int64_t out_row = kShape.heads * kShape.rank;
    const auto q = random.normals(kTokens * q_row);
    const auto together = attend(kShape, cache, kPosition, kTokens, q);
    for (const auto& [begin, end] : {std::pair{0, 1}, {3, 20}, {20, 31}, {44, 45}}) {
        const auto part = attend(kShape, cache, kPosition + begin, end - begin,
                                 std::span(q).subspan(begin * q_row, (end - begin) * q_row));
        ASSERT_EQ(std::memcmp(part.data(), together.data() + begin * out_row,
                              part.size() * sizeof(float)),
                  0)
            << "tokens [" << begin << ", " << end << ")";
    }
}

TEST_P(Mla, survives_scores_far_apart) {
    Cache cache(kSmall, 40);
    for (int32_t t = 0; t < 40; ++t) {
        for (Bf16& v : cache.row(t)) v = to_bf16(t == 20 ? 100.0f : -100.0f);
    }
    const std::vector<float> q(kSmall.heads * kSmall.cache_width(), 10.0f);
    for (const float v : attend(kSmall, cache, 39, 1, q)) ASSERT_EQ(v, 100.0f);
}

TEST_P(Mla, absorbed_form_equals_the_expanded_one) {
    constexpr int32_t kTokens = 2;
    constexpr int32_t kPosition = 20;
    for (const MlaShape& shape : {kShape, kSmall}) {
        const int32_t head_rows = shape.nope + shape.value;
        const Matrix kv_b = testing::random_matrix(WeightFormat::kFp8Tile, shape.heads * head_rows,
                                                   shape.rank, random);
        const auto w = testing::weight_values(kv_b.view());
        Cache cache(shape, kPosition + kTokens);
        cache.fill(kPosition + kTokens, random);
        const auto q = random.normals(int64_t{kTokens} * shape.heads * shape.query_width(), 0.1f);

        auto latent_q = poisoned(int64_t{kTokens} * shape.heads * shape.cache_width());
        mla_absorb_query({shape, kTokens, kv_b.view(), q, latent_q});
        const auto latent_out = attend(shape, cache, kPosition, kTokens, latent_q);
        auto o = poisoned(int64_t{kTokens} * shape.heads * shape.value);
        mla_expand_values({shape, kTokens, kv_b.view(), latent_out, o});

        const auto expand = [&](int32_t head, int32_t row, int32_t position) {
            double sum = 0;
            for (int64_t i = 0; i < shape.rank; ++i) {
                sum +=
                    w[(int64_t{head} * head_rows + row) * shape.rank + i] * cache.at(position, i);
            }
            return sum;
        };
        for (int32_t t = 0; t < kTokens; ++t) {
            for (int32_t h = 0; h < shape.heads; ++h) {
                const float* qh = q.data() + (int64_t{t} * shape.heads + h) * shape.query_width();
                std::vector<double> p;
                double sum = 0;
                for (int32_t s = 0; s <= kPosition + t; ++s) {
                    double score = 0;
                    for (int32_t i = 0; i < shape.nope; ++i) score += qh[i] * expand(h, i, s);
                    for (int32_t i = 0; i < shape.rope; ++i) {
                        score += qh[shape.nope + i] * cache.at(s, shape.rank + i);
                    }
                    p.push_back(std::exp(score / std::sqrt(shape.query_width())));
                    sum += p.back();
                }
                for (int32_t i = 0; i < shape.value; i += 17) {
                    double exact = 0;
                    double magnitude = 0;
                    for (int32_t s = 0; s <= kPosition + t; ++s) {
                        const double v = expand(h, shape.nope + i, s);
                        exact += p[s] / sum * v;
                        magnitude += p[s] / sum * std::abs(v);
                    }
                    const float got = o[(int64_t{t} * shape.heads + h) * shape.value + i];
                    ASSERT_NEAR(got, exact, f32_sum_tolerance(shape.rank, 60 * magnitude))
                        << "token " << t << " head " << h << " value " << i;
                }
            }
        }
    }
}

TEST_P(Mla, output_gate_multiplies_by_the_sigmoid) {
    std::vector<float> o{1.0f, -2.0f, 4.0f};
    mla_output_gate(std::vector<float>{0.0f, 2.0f, -2.0f}, o);
    EXPECT_NEAR(o[0], 0.5, 1e-6);
    EXPECT_NEAR(o[1], -1.7615941559557649, 2e-6);
    EXPECT_NEAR(o[2], 0.4768116880884702, 1e-6);
}

K3POD_ON_EVERY_TARGET(Mla);

TEST(MlaDeathTest, refuses_pages_that_do_not_cover_the_positions) {
    Cache cache(kSmall, 32);
    const std::vector<float> q(kSmall.heads * kSmall.cache_width());
    EXPECT_DEATH(attend(kSmall, cache, 32, 1, q), "cover every position");
}

}  // namespace
}  // namespace k3pod::ops
