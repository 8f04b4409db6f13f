#pragma once
// The checks, each from facts and needs to its lines. check_facts() puts them in order.

#include <string>
#include <utility>
#include <vector>

#include "k3pod/fabric/check.h"

namespace k3pod::fabric {

class Lines {
  public:
    void ok(std::string check, std::string found, std::string expected) {
        lines_.push_back(
            {std::move(check), Verdict::kOk, std::move(found), std::move(expected), {}});
    }
    // `remedy` is the command, or the one thing, that mends it.
    void add(Verdict verdict, std::string check, std::string found, std::string expected,
             std::string remedy) {
        if (verdict == Verdict::kOk) remedy.clear();
        lines_.push_back(
            {std::move(check), verdict, std::move(found), std::move(expected), std::move(remedy)});
    }
    std::vector<CheckLine> take() { return std::move(lines_); }

  private:
    std::vector<CheckLine> lines_;
};

void check_rdma(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines);
void check_routes(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines);
void check_limits(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines);
void check_memory(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines);
void check_gpu(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines);

// "104.5 GiB"
std::string gibibytes(int64_t bytes);

}  // namespace k3pod::fabric
