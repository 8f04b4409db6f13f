#pragma once
// Rank BPE: repeatedly merges the adjacent pair whose bytes have the lowest rank, leftmost first.

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/rank_table.h"

namespace k3pod {

// O(n log n) in the bytes of a piece: candidates wait in a heap, and a candidate whose neighbours
// have merged since is recognised as stale when it comes up. One per call of encode, so that the
// buffers are reused from piece to piece. Borrows the table.
class BpeMerger {
  public:
    explicit BpeMerger(const RankTable& ranks) : ranks_(ranks) {}
    // Appends the ids of one non-empty piece of at most 4 GiB.
    void encode(std::string_view piece, std::vector<int32_t>& ids);

  private:
    // A part is named by the offset of its first byte.
    struct Part {
        uint32_t prev;  // Previous part; meaningless for the first.
        uint32_t end;   // One past its last byte, which is the next part's name; 0: merged away.
        int32_t rank;
    };
    // Two neighbours, the bytes [left, end), are together a token.
    struct Candidate {
        int32_t rank;
        uint32_t left, end;
        // For the standard heap, whose front is the largest.
        bool operator<(const Candidate& o) const {
            return rank != o.rank ? rank > o.rank : left > o.left;
        }
    };

    void start(std::string_view piece);
    void merge(std::string_view piece, const Candidate& candidate);
    bool is_current(const Candidate& candidate) const;
    // Adds the pair that starts at `left` if there is one and it is a token.
    void consider(std::string_view piece, uint32_t left);

    const RankTable& ranks_;
    std::vector<Part> parts_;
    std::vector<Candidate> heap_;
};

}  // namespace k3pod
