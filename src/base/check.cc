#include "k3pod/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace k3pod {

void check_failed(const char* condition, const char* text, const char* file, int line) {
    std::fprintf(stderr, "k3pod: broken invariant: %s (%s) at %s:%d\n", text, condition, file,
                 line);
    std::abort();
}

}  // namespace k3pod
