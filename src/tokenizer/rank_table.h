#pragma once
// The ranks of tiktoken.model: which byte strings are tokens, and in which order they merge.

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

class RankTable {
  public:
    // One entry per line: base64 of the bytes, a space, the rank. Refuses, with file, line and
    // value: anything else, a rank or byte string given twice, ranks not dense from 0, a single
    // byte without a rank (text could then be unencodable).
    static Result<RankTable> read(const std::filesystem::path& file);

    int32_t num_ranks() const { return static_cast<int32_t>(begin_.size()) - 1; }
    // `rank` is in [0, num_ranks). The view lives as long as the table.
    std::string_view bytes(int32_t rank) const;
    // The rank of exactly these bytes, or kNone.
    int32_t find(std::string_view bytes) const;
    int32_t byte_rank(char byte) const { return byte_rank_[static_cast<uint8_t>(byte)]; }

    static constexpr int32_t kNone = -1;

  private:
    struct Entry;
    static Result<std::vector<Entry>> read_entries(const std::filesystem::path& file);
    Status index(const std::filesystem::path& file, const std::vector<Entry>& entries);

    std::vector<char> blob_;  // Bytes of all ranks, back to back. A vector: views survive a move.
    std::vector<uint32_t> begin_;  // [num_ranks + 1] offsets into blob_.
    std::unordered_map<std::string_view, int32_t> rank_of_;
    std::array<int32_t, 256> byte_rank_{};
    size_t longest_bytes_ = 0;
};

}  // namespace k3pod
