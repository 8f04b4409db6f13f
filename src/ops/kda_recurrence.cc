#include "k3pod/ops/kda.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kda_recurrence.cc"
#include "hwy/foreach_target.h"
//
#include "ops/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

inline constexpr int64_t kMaxDim = 128;
// Rows of a state that share one reading of q, k and the decay, and how far ahead of them memory is
// asked for: states of many sequences come from beyond the second-level cache.
inline constexpr int64_t kRowsAtOnce = 4;
inline constexpr int64_t kPrefetchRows = 8;

// One head's rows of the arguments, from some token on.
struct HeadView {
    int64_t dim;           // D, a multiple of kLanes
    int64_t token_stride;  // of q, k, v, log_decay and out
    int64_t beta_stride;
    const float *q, *k, *v, *log_decay, *beta;
    float* state;  // [D(v), D(k)]
    float* out;

    const float* at(const float* base, int64_t t) const { return base + t * token_stride; }
    float* out_at(int64_t t) const { return out + t * token_stride; }
    float beta_at(int64_t t) const { return beta[t * beta_stride]; }
};

// One token. With S' the decayed state, o = S'q + u <k, q>, so one pass over S' gives both
// products.
HWY_INLINE void step_token(const HeadView& head) {
    HWY_ALIGN float alpha[kMaxDim];
    const int64_t dim = head.dim;
    map(head.log_decay, alpha, dim, [](V g) HWY_ATTR { return exp(g); });
    const float kq = dot(head.k, head.q, dim);
    const float beta = head.beta_at(0);
    for (int64_t v = 0; v < dim; v += kRowsAtOnce) {
        float* rows = head.state + v * dim;
        V by_k[kRowsAtOnce], by_q[kRowsAtOnce], update[kRowsAtOnce];
        for (int64_t r = 0; r < kRowsAtOnce; ++r) by_k[r] = by_q[r] = hn::Zero(D());
        for (int64_t i = 0; i < dim; i += kLanes) {
            const V a = load(alpha + i), k = load(head.k + i), q = load(head.q + i);
            for (int64_t r = 0; r < kRowsAtOnce; ++r) {
                float* at = rows + r * dim + i;
                hwy::Prefetch(at + kPrefetchRows * dim);
                const V s = hn::Mul(load(at), a);
                store(s, at);
                by_k[r] = hn::MulAdd(s, k, by_k[r]);
                by_q[r] = hn::MulAdd(s, q, by_q[r]);
            }
        }
        for (int64_t r = 0; r < kRowsAtOnce; ++r) {
            const float u = beta * (head.v[v + r] - sum_lanes(by_k[r]));
            head.out[v + r] = sum_lanes(by_q[r]) + u * kq;
            update[r] = broadcast(u);
        }
        for (int64_t i = 0; i < dim; i += kLanes) {
            const V k = load(head.k + i);
            for (int64_t r = 0; r < kRowsAtOnce; ++r) {
                float* at = rows + r * dim + i;
                store(hn::MulAdd(update[r], k, load(at)), at);
            }
        }
    }
}

// Work space of a chunk. With G the running sum of log_decay, exp(G) and exp(-G) reach e^80; only
// differences of G matter in the products of q and k rows, so those are taken around G_mid = G_end
// / 2, which keeps every factor within e^40.
struct Chunk {
    using Block = float[kKdaChunk][kMaxDim];
    HWY_ALIGN Block q_mid, k_mid;  // q, k times exp(G - G_mid)
    HWY_ALIGN Block k_up;          // k times exp(G_mid - G)
    HWY_ALIGN Block qk_full[2];    // q, then k, times exp(G)
    HWY_ALIGN Block k_rest;        // k times exp(G_end - G)
    HWY_ALIGN Block state_qk[2];   // S times qk_full
    HWY_ALIGN Block u;
    HWY_ALIGN float from_mid[kMaxDim];         // exp(G_mid) = exp(G_end - G_mid)
    HWY_ALIGN float qk[kKdaChunk][kKdaChunk];  // <q_r, k_c> decayed from c to r, used for c <= r
    HWY_ALIGN float kk[kKdaChunk][kKdaChunk];  // <k_r, k_c> likewise, used for c < r
};

HWY_INLINE void decay_rows(const HeadView& head, int64_t tokens, Chunk& c) {
    HWY_ALIGN float sums[kKdaChunk][kMaxDim];
    for (int64_t i = 0; i < head.dim; i += kLanes) {
        V sum = hn::Zero(D());
        for (int64_t t = 0; t < tokens; ++t) {
            sum = hn::Add(sum, load(head.at(head.log_decay, t) + i));
            store(sum, sums[t] + i);
        }
        const V mid = hn::Mul(sum, broadcast(0.5f));
        const V from_mid = exp(mid);
        store(from_mid, c.from_mid + i);
        for (int64_t t = 0; t < tokens; ++t) {
            const V k = load(head.at(head.k, t) + i);
            const V decay = exp(hn::Sub(load(sums[t] + i), mid));
            const V growth = exp(hn::Sub(mid, load(sums[t] + i)));
            const V q_mid = hn::Mul(load(head.at(head.q, t) + i), decay);
            const V k_mid = hn::Mul(k, decay);
            const V k_up = hn::Mul(k, growth);
            store(q_mid, c.q_mid[t] + i);
            store(k_mid, c.k_mid[t] + i);
            store(k_up, c.k_up[t] + i);
            store(hn::Mul(q_mid, from_mid), c.qk_full[0][t] + i);
            store(hn::Mul(k_mid, from_mid), c.qk_full[1][t] + i);
            store(hn::Mul(k_up, from_mid), c.k_rest[t] + i);
        }
    }
}

HWY_INLINE void multiply_rows(const HeadView& head, int64_t tokens, Chunk& c) {
    const auto rows_of = [](const Chunk::Block& block) HWY_ATTR { return Rows{block[0], kMaxDim}; };
    const int64_t dim = head.dim;
    const Rows k_up = rows_of(c.k_up);
    const Rows state{head.state, dim};
    dot_rows(tokens, rows_of(c.q_mid), tokens, k_up, dim, {c.qk[0], kKdaChunk, false});
    dot_rows(tokens, rows_of(c.k_mid), tokens, k_up, dim, {c.kk[0], kKdaChunk, false});
    for (int i = 0; i < 2; ++i) {
        dot_rows(tokens, rows_of(c.qk_full[i]), dim, state, dim,
                 {c.state_qk[i][0], kMaxDim, false});
    }
}

// y += sum over n rows of coefficients[row] * rows[row].
HWY_INLINE void add_rows(const float* coefficients, int64_t n, const Chunk::Block& rows, int64_t i,
                         V& y) {
    for (int64_t r = 0; r < n; ++r) {
        y = hn::MulAdd(broadcast(coefficients[r]), load(rows[r] + i), y);
    }
}

// Forward substitution of (I + L) U = W, then o = S q + M U, for each vector of value channels.
HWY_INLINE void solve_and_emit(const HeadView& head, int64_t tokens, Chunk& c) {
    for (int64_t t = 0; t < tokens; ++t) {
        const V beta = broadcast(head.beta_at(t));
        for (int64_t i = 0; i < head.dim; i += kLanes) {
            V predicted = load(c.state_qk[1][t] + i);
            add_rows(c.kk[t], t, c.u, i, predicted);
            const V v = load(head.at(head.v, t) + i);
            store(hn::Mul(beta, hn::Sub(v, predicted)), c.u[t] + i);
        }
    }
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t i = 0; i < head.dim; i += kLanes) {
            V o = load(c.state_qk[0][t] + i);
            add_rows(c.qk[t], t + 1, c.u, i, o);
            store(o, head.out_at(t) + i);
        }
    }
}

// S <- S exp(G_end) + sum_c u_c k_rest_c^T, four rows of S at a time.
HWY_INLINE void advance_state(const HeadView& head, int64_t tokens, const Chunk& c) {
    constexpr int64_t kRows = 4;
    for (int64_t v = 0; v < head.dim; v += kRows) {
        float* rows = head.state + v * head.dim;
        for (int64_t i = 0; i < head.dim; i += kLanes) {
            const V from_mid = load(c.from_mid + i);
            const V decay = hn::Mul(from_mid, from_mid);
            V s[kRows];
            for (int64_t r = 0; r < kRows; ++r)
                s[r] = hn::Mul(load(rows + r * head.dim + i), decay);
            for (int64_t t = 0; t < tokens; ++t) {
                const V k = load(c.k_rest[t] + i);
                for (int64_t r = 0; r < kRows; ++r) {
                    s[r] = hn::MulAdd(broadcast(c.u[t][v + r]), k, s[r]);
                }
            }
            for (int64_t r = 0; r < kRows; ++r) store(s[r], rows + r * head.dim + i);
        }
    }
}

HWY_INLINE void run_chunk(const HeadView& head, int64_t tokens) {
    Chunk chunk;
    decay_rows(head, tokens, chunk);
    multiply_rows(head, tokens, chunk);
    solve_and_emit(head, tokens, chunk);
    advance_state(head, tokens, chunk);
}

HeadView head_view(const KdaRecurrenceArgs& args, int64_t head, int64_t token) {
    const int64_t dim = args.head_dim;
    const int64_t at = (token * args.heads + head) * dim;
    return {.dim = dim,
            .token_stride = args.heads * dim,
            .beta_stride = args.heads,
            .q = args.q.data() + at,
            .k = args.k.data() + at,
            .v = args.v.data() + at,
            .log_decay = args.log_decay.data() + at,
            .beta = args.beta.data() + token * args.heads + head,
            .state = args.state.data() + head * dim * dim,
            .out = args.out.data() + at};
}

void recur(const KdaRecurrenceArgs& args) {
    for (int64_t h = 0; h < args.heads; ++h) {
        for (int64_t t = 0; t < args.tokens; t += kKdaChunk) {
            const HeadView head = head_view(args, h, t);
            const int64_t tokens = HWY_MIN(int64_t{kKdaChunk}, args.tokens - t);
            if (tokens == 1) {
                step_token(head);
            } else {
                run_chunk(head, tokens);
            }
        }
    }
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "k3pod/base/check.h"

namespace k3pod::ops {

HWY_EXPORT(recur);

void kda_recurrence(const KdaRecurrenceArgs& args) {
    const auto tokens = static_cast<size_t>(args.tokens);
    const auto heads = static_cast<size_t>(args.heads);
    const auto dim = static_cast<size_t>(args.head_dim);
    const size_t size = tokens * heads * dim;
    K3POD_CHECK(dim > 0 && dim % 16 == 0 && dim <= 128,
                "head_dim must be a multiple of 16, at most 128");
    K3POD_CHECK(args.q.size() == size && args.k.size() == size && args.v.size() == size,
                "q, k and v must be [T, heads, D]");
    K3POD_CHECK(args.log_decay.size() == size && args.out.size() == size,
                "log_decay and out must be [T, heads, D]");
    K3POD_CHECK(args.beta.size() == tokens * heads, "beta must be [T, heads]");
    K3POD_CHECK(args.state.size() == heads * dim * dim, "state must be [heads, D, D]");
    HWY_DYNAMIC_DISPATCH(recur)(args);
}

}  // namespace k3pod::ops
#endif
