#include "k3pod/kernels/mla.h"

#include <numeric>

#include "k3pod/ops/elementwise.h"
#include "k3pod/ops/mla.h"
#include "tests/kernel/attention/compare.h"
#include "tests/support/gpu_test.h"
#include "tests/support/random_values.h"
#include "tests/support/weight_matrices.h"

namespace k3pod {
namespace {

using testing::from_gpu;
using testing::kBf16Close;
using testing::kF32Close;
using testing::poisoned_on_gpu;
using testing::relative_error;
using testing::to_gpu;

constexpr int32_t kPageTokens = 64;
constexpr kernels::MlaDims kK3{.heads = 96, .nope = 128, .rope = 64, .value = 128, .rank = 512};
constexpr kernels::MlaDims kTiny{.heads = 3, .nope = 128, .rope = 64, .value = 128, .rank = 512};
constexpr kernels::MlaDims kOdd{.heads = 5, .nope = 24, .rope = 16, .value = 40, .rank = 48};

ops::MlaShape twin_of(const kernels::MlaDims& d) {
    return {d.heads, d.nope, d.rope, d.value, d.rank};
}

// Pages of one layer inside those of several, in shuffled order; unwritten places hold NaN.
class Cache {
  public:
    Cache(const kernels::MlaDims& dims, int32_t sequences, int32_t tokens,
          testing::RandomValues& random)
        : dims_(dims),
          pages_of_sequence_((tokens + kPageTokens - 1) / kPageTokens),
          table_(static_cast<size_t>(sequences * pages_of_sequence_)) {
        std::iota(table_.begin(), table_.end(), 0);
        for (size_t i = table_.size(); i > 1; --i) {
            std::swap(table_[i - 1],
                      table_[static_cast<size_t>(random.integer(0, static_cast<int32_t>(i) - 1))]);
        }
        host_.assign(table_.size() * static_cast<size_t>(stride()), Bf16{0xffff});
    }

    // Random rows at positions [0, tokens) of a sequence.
    void fill(int32_t sequence, int32_t tokens, testing::RandomValues& random) {
        for (int32_t t = 0; t < tokens; ++t) {
            for (Bf16& v : row(sequence, t)) v = to_bf16(random.normal());
        }
    }
    std::span<Bf16> row(int32_t sequence, int32_t position) {
        const auto at =
            table_[static_cast<size_t>(sequence * pages_of_sequence_ + position / kPageTokens)] *
                stride() +
            position % kPageTokens * dims_.cache_width();
        return std::span(host_).subspan(static_cast<size_t>(at),
                                        static_cast<size_t>(dims_.cache_width()));
    }
    std::vector<std::span<Bf16>> pages_of(int32_t sequence) {
        std::vector<std::span<Bf16>> pages;
        for (int32_t p = 0; p < pages_of_sequence_; ++p) {
            const auto first = row(sequence, p * kPageTokens);
            pages.emplace_back(first.data(),
                               static_cast<size_t>(kPageTokens * dims_.cache_width()));
        }
        return pages;
    }
    std::vector<Bf16>& host() { return host_; }
    const std::vector<int32_t>& table() const { return table_; }
    int32_t pages_of_sequence() const { return pages_of_sequence_; }
    // A second layer's page lies between two of this one.
    int64_t stride() const { return 2 * int64_t{kPageTokens} * dims_.cache_width(); }

  private:
    kernels::MlaDims dims_;
    int32_t pages_of_sequence_;
    std::vector<int32_t> table_;
    std::vector<Bf16> host_;
};

// Chunks in device memory; sequence i is chunk i.
struct Chunks {
    Chunks(const Cache& cache, const std::vector<int32_t>& num_rows,
           const std::vector<int32_t>& positions)
        : positions_host(positions), num_rows_host(num_rows) {
        for (const int32_t n : num_rows) {
            first_rows_host.push_back(rows);
            rows += std::max(n, 1);  // padding has a row too
            max_rows = std::max(max_rows, n);
        }
        first_row = to_gpu(first_rows_host);
        count = to_gpu(num_rows);
        position = to_gpu(positions);
        table = to_gpu(cache.table());
        page_stride = cache.pages_of_sequence();
    }
    kernels::StepChunks view() const {
        return {.num_chunks = static_cast<int32_t>(num_rows_host.size()),
                .max_rows = max_rows,
                .first_row = first_row.as<int32_t>(),
                .num_rows = count.as<int32_t>(),
                .positions = position.as<int32_t>(),
                .page_table = table.as<int32_t>(),
                .page_stride = page_stride};
    }
    std::vector<int32_t> positions_host, num_rows_host, first_rows_host;
    int32_t rows = 0, max_rows = 1, page_stride = 0;
    DeviceBuffer first_row, count, position, table;
};

class MlaKernels : public testing::GpuTest {
  protected:
    struct AttendCase {
        kernels::MlaDims dims;
        std::vector<int32_t> num_rows, positions;
        int32_t num_splits = 1;
    };

    // The kernel's latent_out [R, heads, rank], after a comparison with the twin.
    std::vector<float> check_attend(const AttendCase& c, testing::RandomValues values) {
        const auto& d = c.dims;
        int32_t longest = 1;
        for (size_t i = 0; i < c.num_rows.size(); ++i) {
            longest = std::max(longest, c.positions[i] + c.num_rows[i]);
        }
        Cache cache(d, static_cast<int32_t>(c.num_rows.size()), longest, values);
        Chunks chunks(cache, c.num_rows, c.positions);
        for (size_t i = 0; i < c.num_rows.size(); ++i) {
            cache.fill(static_cast<int32_t>(i), c.positions[i] + c.num_rows[i], values);
        }
        // Scores of some units: no position dominates, none is lost.
        const auto q = values.normals(int64_t{chunks.rows} * d.heads * d.cache_width(), 0.06f);
        std::vector<Bf16> q_bf16(q.size());
        ops::to_bf16(q, q_bf16);

        const auto q_gpu = to_gpu(q_bf16);
        const auto pages = to_gpu(cache.host());
        const auto out = poisoned_on_gpu<float>(int64_t{chunks.rows} * d.heads * d.rank);
        const auto workspace =
            poisoned_on_gpu<std::byte>(kernels::mla_workspace_bytes(d, chunks.rows, c.num_splits));
        const Status done =
            kernels::mla_attend({.dims = d,
                                 .chunks = chunks.view(),
                                 .rows = chunks.rows,
                                 .latent_q = q_gpu.as<Bf16>(),
                                 .cache = {pages.as<Bf16>(), cache.stride(), kPageTokens},
                                 .num_splits = c.num_splits,
                                 .workspace = workspace.data(),
                                 .latent_out = out.as<float>()},
                                stream());
        EXPECT_TRUE(done.is_ok()) << done.to_string();
        synchronize();
        const auto got = from_gpu<float>(out);
        for (size_t i = 0; i < c.num_rows.size(); ++i) {
            expect_chunk(c, chunks, cache, testing::widened(q_bf16), i, got);
        }
        return got;
    }

    static void expect_chunk(const AttendCase& c, const Chunks& chunks, Cache& cache,
                             const std::vector<float>& q, size_t i, const std::vector<float>& got) {
        const auto& d = c.dims;
        const int64_t first = chunks.first_rows_host[i];
        const int64_t row = int64_t{d.heads} * d.rank;
        const auto rows = std::span(got).subspan(static_cast<size_t>(first * row),
                                                 static_cast<size_t>(c.num_rows[i] * row));
        const auto pages = cache.pages_of(static_cast<int32_t>(i));
        const std::vector<std::span<const Bf16>> views(pages.begin(), pages.end());
        const int64_t q_row = int64_t{d.heads} * d.cache_width();
        std::vector<float> want(rows.size());
        ops::mla_attend(
            {.shape = twin_of(d),
             .tokens = c.num_rows[i],
             .position = c.positions[i],
             .latent_q = std::span(q).subspan(static_cast<size_t>(first * q_row),
                                              static_cast<size_t>(c.num_rows[i] * q_row)),
             .scale = 1.0f,
             .cache = {views, kPageTokens},
             .latent_out = want});
        if (c.num_rows[i] > 0) {
            EXPECT_LT(relative_error(rows, want), kBf16Close) << "chunk " << i;
        } else {
            EXPECT_TRUE(std::isnan(got[static_cast<size_t>(first * row)]));
        }
    }

    testing::RandomValues random;
};

TEST_F(MlaKernels, write_latents_norms_the_latent_and_rounds_once) {
    SCOPED_TRACE(random.trace());
    for (const auto& d : {kK3, kOdd}) {
        Cache cache(d, 3, 130, random);
        Chunks chunks(cache, {2, 0, 70}, {63, 5, 60});
        const auto kv = random.normals(int64_t{chunks.rows} * d.cache_width(), 3.0f);
        const auto norm = random.normals(d.rank);
        const auto kv_gpu = to_gpu(kv), norm_gpu = to_gpu(norm);
        const auto pages = to_gpu(cache.host());
        const Status done =
            kernels::mla_write_latents({.dims = d,
                                        .chunks = chunks.view(),
                                        .kv = kv_gpu.as<float>(),
                                        .norm_weight = norm_gpu.as<float>(),
                                        .eps = 1e-6f,
                                        .cache = {pages.as<Bf16>(), cache.stride(), kPageTokens}},
                                       stream());
        ASSERT_TRUE(done.is_ok()) << done.to_string();
        synchronize();
        const auto before = cache.host();
        for (const size_t i : {0, 2}) {
            auto sequence_pages = cache.pages_of(static_cast<int32_t>(i));
            ops::mla_write_latents(
                {.shape = twin_of(d),
                 .tokens = chunks.num_rows_host[i],
                 .position = chunks.positions_host[i],
                 .kv = std::span(kv).subspan(
                     static_cast<size_t>(chunks.first_rows_host[i] * d.cache_width()),
                     static_cast<size_t>(chunks.num_rows_host[i] * d.cache_width())),
                 .norm_weight = norm,
                 .eps = 1e-6f,
                 .cache = {sequence_pages, kPageTokens}});
        }
        const auto got = from_gpu<Bf16>(pages);
        for (size_t i = 0; i < got.size(); ++i) {
            if (before[i].bits == cache.host()[i].bits) {
                ASSERT_EQ(got[i].bits, before[i].bits);
            } else {
                ASSERT_NEAR(to_f32(got[i]), to_f32(cache.host()[i]),
                            std::abs(to_f32(cache.host()[i])) / 128);
            }
        }
    }
}

TEST_F(MlaKernels, projections_with_kv_b_equal_their_twins_in_every_format) {
    SCOPED_TRACE(random.trace());
    for (const WeightFormat format : testing::kAllFormats) {
        for (const int32_t rows : {1, 2, 19}) {
            const auto d = format == WeightFormat::kFp8Tile && rows < 3 ? kK3 : kTiny;
            SCOPED_TRACE(::testing::Message() << weight_format_name(format) << ", " << rows);
            const Matrix kv_b =
                testing::random_matrix(format, d.heads * (d.nope + d.value), d.rank, random);
            const MatrixView& host = kv_b.view();
            const auto data = to_gpu(std::span(
                host.data, static_cast<size_t>(matrix_data_bytes(format, host.rows, host.cols))));
            const auto scales = to_gpu(
                std::span(host.scales,
                          static_cast<size_t>(matrix_scale_bytes(format, host.rows, host.cols))));
            MatrixView on_gpu = host;
            on_gpu.data = data.data();
            on_gpu.scales = scales.data();

            const auto q = random.normals(int64_t{rows} * d.heads * d.query_width());
            const int64_t wide = int64_t{rows} * d.heads * d.cache_width();
            std::vector<float> want(static_cast<size_t>(wide));
            ops::mla_absorb_query({twin_of(d), rows, host, q, want});
            for (float& v : want) v *= 0.25f;
            const auto q_gpu = to_gpu(q);
            const auto latent_q = poisoned_on_gpu<Bf16>(wide);
            Status done = kernels::mla_absorb_query({.dims = d,
                                                     .rows = rows,
                                                     .kv_b = on_gpu,
                                                     .q = q_gpu.as<float>(),
                                                     .scale = 0.25f,
                                                     .latent_q = latent_q.as<Bf16>()},
                                                    stream());
            ASSERT_TRUE(done.is_ok()) << done.to_string();

            const auto latents = random.normals(int64_t{rows} * d.heads * d.rank);
            const auto g = random.normals(int64_t{rows} * d.heads * d.value);
            std::vector<float> o(g.size());
            ops::mla_expand_values({twin_of(d), rows, host, latents, o});
            ops::mla_output_gate(g, o);
            const auto latents_gpu = to_gpu(latents), g_gpu = to_gpu(g);
            const auto o_gpu = poisoned_on_gpu<float>(static_cast<int64_t>(o.size()));
            done = kernels::mla_expand_values({.dims = d,
                                               .rows = rows,
                                               .kv_b = on_gpu,
                                               .latent_out = latents_gpu.as<float>(),
                                               .g = g_gpu.as<float>(),
                                               .o = o_gpu.as<float>()},
                                              stream());
            ASSERT_TRUE(done.is_ok()) << done.to_string();
            synchronize();
            EXPECT_LT(relative_error(testing::widened(from_gpu<Bf16>(latent_q)), want), kBf16Close);
            EXPECT_LT(relative_error(from_gpu<float>(o_gpu), o), kF32Close);
        }
    }
}

TEST_F(MlaKernels, decode_equals_its_twin_at_every_length_and_split) {
    SCOPED_TRACE(random.trace());
    for (const int32_t splits : {1, 2, 7}) {
        SCOPED_TRACE(::testing::Message() << splits << " splits");
        check_attend(
            {kTiny, {1, 1, 1, 1, 1, 1, 1, 0, 1, 1}, {0, 1, 14, 15, 16, 62, 63, 9, 64, 300}, splits},
            random);
        check_attend({kOdd, {1, 1, 1}, {0, 33, 200}, splits}, random);
    }
}

TEST_F(MlaKernels, decode_at_k3s_widths_equals_its_twin_at_every_length_and_split) {
    SCOPED_TRACE(random.trace());
    for (const int32_t splits : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << splits << " splits");
        check_attend({kK3, {1, 1, 1, 1, 0, 1, 1, 1}, {0, 1, 15, 62, 9, 63, 64, 300}, splits},
                     random);
    }
    check_attend({kK3, {1, 1}, {4095, 1000}, 44}, random);
    const kernels::MlaDims twice{.heads = 192, .nope = 128, .rope = 64, .value = 128, .rank = 512};
    check_attend({twice, {1, 2}, {70, 5}, 2}, random);
}

// A score far above all before it moves what the sums are relative to.
TEST_F(MlaKernels, a_position_that_outweighs_all_earlier_ones_is_all_that_counts) {
    SCOPED_TRACE(random.trace());
    for (const auto& d : {kK3, kTiny}) {
        Cache cache(d, 1, 700, random);
        cache.fill(0, 700, random);
        for (const int32_t position : {130, 400, 699}) {
            for (Bf16& v : cache.row(0, position)) v = to_bf16(static_cast<float>(position));
        }
        Chunks chunks(cache, {1}, {699});
        // Every score of those positions is positive and grows with them: 0.06 * 699 * 576.
        const std::vector<Bf16> q(static_cast<size_t>(d.heads * d.cache_width()), to_bf16(0.06f));
        const auto q_gpu = to_gpu(q);
        const auto pages = to_gpu(cache.host());
        const auto out = poisoned_on_gpu<float>(int64_t{d.heads} * d.rank);
        const Status done =
            kernels::mla_attend({.dims = d,
                                 .chunks = chunks.view(),
                                 .rows = 1,
                                 .latent_q = q_gpu.as<Bf16>(),
                                 .cache = {pages.as<Bf16>(), cache.stride(), kPageTokens},
                                 .latent_out = out.as<float>()},
                                stream());
        ASSERT_TRUE(done.is_ok()) << done.to_string();
        synchronize();
        const std::vector<float> want(static_cast<size_t>(d.heads * d.rank),
                                      to_f32(to_bf16(699.0f)));
        EXPECT_LT(relative_error(from_gpu<float>(out), want), kBf16Close);
    }
}

TEST_F(MlaKernels, prefill_is_causal_across_chunks_and_pages) {
    SCOPED_TRACE(random.trace());
    check_attend({kTiny, {70, 1, 0, 33}, {0, 100, 0, 95}}, random);
    check_attend({kOdd, {70, 13}, {3, 64}, 3}, random);
    check_attend({kK3, {5}, {120}}, random);
}

TEST_F(MlaKernels, a_row_has_the_same_bits_in_any_place_of_a_batch) {
    SCOPED_TRACE(random.trace());
    const auto d = kK3;
    testing::RandomValues values = random;
    Cache cache(d, 2, 500, values);
    cache.fill(0, 500, values);
    // Both sequences are the same pages.
    Cache same = cache;
    std::vector<int32_t> table(cache.table());
    std::copy_n(table.begin(), cache.pages_of_sequence(),
                table.begin() + cache.pages_of_sequence());
    Chunks chunks(same, {1, 1}, {499, 499});
    chunks.table = to_gpu(table);
    auto q = values.normals(int64_t{d.heads} * d.cache_width(), 0.06f);
    q.insert(q.end(), q.begin(), q.begin() + int64_t{d.heads} * d.cache_width());
    std::vector<Bf16> q_bf16(q.size());
    ops::to_bf16(q, q_bf16);
    const auto q_gpu = to_gpu(q_bf16);
    const auto pages = to_gpu(same.host());
    const int64_t row = int64_t{d.heads} * d.rank;
    const auto out = poisoned_on_gpu<float>(2 * row);
    const auto workspace = poisoned_on_gpu<std::byte>(kernels::mla_workspace_bytes(d, 2, 5));
    const Status done =
        kernels::mla_attend({.dims = d,
                             .chunks = chunks.view(),
                             .rows = 2,
                             .latent_q = q_gpu.as<Bf16>(),
                             .cache = {pages.as<Bf16>(), cache.stride(), kPageTokens},
                             .num_splits = 5,
                             .workspace = workspace.data(),
                             .latent_out = out.as<float>()},
                            stream());
    ASSERT_TRUE(done.is_ok()) << done.to_string();
    synchronize();
    const auto got = from_gpu<float>(out);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + row, got.begin() + row));
}

}  // namespace
}  // namespace k3pod
