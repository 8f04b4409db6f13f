#include "tokenizer/bpe.h"

#include <algorithm>

namespace k3pod {

void BpeMerger::encode(std::string_view piece, std::vector<int32_t>& ids) {
    if (const int32_t rank = ranks_.find(piece); rank != RankTable::kNone) {
        ids.push_back(rank);
        return;
    }
    start(piece);
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end());
        const Candidate best = heap_.back();
        heap_.pop_back();
        if (is_current(best)) merge(piece, best);
    }
    for (uint32_t at = 0; at < piece.size(); at = parts_[at].end) ids.push_back(parts_[at].rank);
}

void BpeMerger::start(std::string_view piece) {
    const auto num_bytes = static_cast<uint32_t>(piece.size());
    parts_.resize(num_bytes);
    heap_.clear();
    for (uint32_t i = 0; i < num_bytes; ++i) {
        parts_[i] = {i - 1, i + 1, ranks_.byte_rank(piece[i])};
    }
    for (uint32_t i = 0; i + 2 <= num_bytes; ++i) {
        const int32_t rank = ranks_.find(piece.substr(i, 2));
        if (rank != RankTable::kNone) heap_.push_back({rank, i, i + 2});
    }
    std::make_heap(heap_.begin(), heap_.end());
}

bool BpeMerger::is_current(const Candidate& candidate) const {
    const uint32_t middle = parts_[candidate.left].end;
    return middle != 0 && middle < candidate.end && parts_[middle].end == candidate.end;
}

void BpeMerger::merge(std::string_view piece, const Candidate& candidate) {
    Part& left = parts_[candidate.left];
    parts_[left.end].end = 0;
    left.end = candidate.end;
    left.rank = candidate.rank;
    if (left.end < piece.size()) parts_[left.end].prev = candidate.left;
    consider(piece, candidate.left);
    if (candidate.left > 0) consider(piece, left.prev);
}

void BpeMerger::consider(std::string_view piece, uint32_t left) {
    const uint32_t middle = parts_[left].end;
    if (middle >= piece.size()) return;
    const uint32_t end = parts_[middle].end;
    const int32_t rank = ranks_.find(piece.substr(left, end - left));
    if (rank == RankTable::kNone) return;
    heap_.push_back({rank, left, end});
    std::push_heap(heap_.begin(), heap_.end());
}

}  // namespace k3pod
