#pragma once
// K3POD_CHECK(cond, "text"): a broken invariant of our own. Prints text and place to stderr and
// aborts. Input from outside must never reach one: return a Status instead.

namespace k3pod {
[[noreturn]] void check_failed(const char* condition, const char* text, const char* file, int line);
}

#define K3POD_CHECK(cond, text)                                              \
    do {                                                                     \
        if (!(cond)) ::k3pod::check_failed(#cond, text, __FILE__, __LINE__); \
    } while (0)
