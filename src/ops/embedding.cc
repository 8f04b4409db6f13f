#include "k3pod/ops/embedding.h"

#include "k3pod/base/check.h"
#include "k3pod/ops/linear.h"

namespace k3pod::ops {

void embed(const MatrixView& table, std::span<const int32_t> ids, std::span<float> out) {
    const auto width = static_cast<size_t>(table.cols);
    K3POD_CHECK(out.size() == ids.size() * width, "out must be [T, H]");
    for (size_t t = 0; t < ids.size(); ++t) {
        K3POD_CHECK(ids[t] >= 0 && ids[t] < table.rows, "a token id must be in [0, V)");
        dequantize_rows(table, ids[t], ids[t] + 1, out.subspan(t * width, width));
    }
}

}  // namespace k3pod::ops
