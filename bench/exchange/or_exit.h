#pragma once
// A benchmark that cannot do a step says so and ends.

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "k3pod/base/status.h"

namespace k3pod::bench {

inline void ok_or_exit(const Status& status) {
    if (status.is_ok()) return;
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::_Exit(1);
}

template <class T>
T value_or_exit(Result<T> result) {
    ok_or_exit(result.status());
    return std::move(result).value();
}

}  // namespace k3pod::bench
