#pragma once
// A benchmark that cannot do a step says so and ends.

#include <errno.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "k3pod/base/status.h"

namespace k3pod::bench {

inline void ok_or_exit(const Status& status) {
    if (status.is_ok()) return;
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, status.to_string().c_str());
    std::fflush(nullptr);  // the lines of the cases before it
    std::_Exit(1);         // threads of a half-made case may still run
}

template <class T>
T value_or_exit(Result<T> result) {
    ok_or_exit(result.status());
    return std::move(result).value();
}

}  // namespace k3pod::bench
