#pragma once
// The one error language of k3pod: Status for "did it work", Result<T> for "a T or why not".
//
// Expected failures (bad input, peer gone, deadline, full queue) are a Status. A broken invariant
// is K3POD_CHECK (check.h). No exception crosses a room's public header.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace k3pod {

enum class Code : uint8_t {
    kOk = 0,
    kInvalidArgument,     // The input is wrong whatever the state; HTTP 400.
    kNotFound,            // HTTP 404.
    kPermissionDenied,    // HTTP 401/403.
    kFailedPrecondition,  // Right input, wrong moment or configuration.
    kResourceExhausted,   // A limit is reached; try later. HTTP 429.
    kUnavailable,         // Peer gone, loading or draining; try later. HTTP 503.
    kDeadlineExceeded,    // HTTP 504.
    kCancelled,           // The caller went away.
    kDataLoss,            // Stored bytes are damaged or incomplete.
    kUnimplemented,
    kInternal,
};

// Short stable name of a code, e.g. "invalid_argument".
std::string_view code_name(Code code);

// Ok, or a code and one sentence for a person: the thing, the value, the limit, what to do.
// Ok costs a null pointer; an error allocates once. Thread-compatible.
class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(Code code, std::string message);

    static Status ok() { return {}; }

    bool is_ok() const { return rep_ == nullptr; }
    explicit operator bool() const { return is_ok(); }
    Code code() const { return rep_ ? rep_->code : Code::kOk; }
    // Empty when ok.
    const std::string& message() const;
    // "data_loss: shard ends early ..." or "ok".
    std::string to_string() const;
    // The same code with `prefix` in front of the message: what the caller was doing.
    Status with_context(std::string_view prefix) const;

  private:
    struct Rep {
        Code code;
        std::string message;
    };
    std::shared_ptr<const Rep> rep_;  // Shared so that copies of an error stay cheap.
};

Status invalid_argument(std::string message);
Status not_found(std::string message);
Status failed_precondition(std::string message);
Status resource_exhausted(std::string message);
Status unavailable(std::string message);
Status deadline_exceeded(std::string message);
Status cancelled(std::string message);
Status data_loss(std::string message);
Status internal_error(std::string message);

namespace detail {
[[noreturn]] void bad_result_access(const Status& status);
}

// A T or the Status that says why there is none. Never holds an ok Status.
template <class T>
class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
    Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
        if (status_.is_ok()) detail::bad_result_access(status_);
    }

    bool is_ok() const { return value_.has_value(); }
    explicit operator bool() const { return is_ok(); }
    const Status& status() const { return status_; }

    // Aborts when there is no value.
    T& value() & { return *checked(); }
    const T& value() const& { return *const_cast<Result*>(this)->checked(); }
    T&& value() && { return std::move(*checked()); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return checked(); }
    const T* operator->() const { return const_cast<Result*>(this)->checked(); }

  private:
    T* checked() {
        if (!value_) detail::bad_result_access(status_);
        return &*value_;
    }
    Status status_;
    std::optional<T> value_;
};

}  // namespace k3pod

// Returns the Status of `expr` to the caller unless it is ok.
#define K3POD_TRY(expr)                                                                           \
    do {                                                                                          \
        if (::k3pod::Status k3pod_status_ = (expr); !k3pod_status_.is_ok()) return k3pod_status_; \
    } while (0)

// K3POD_ASSIGN(auto x, f()): x = value of f(), or returns its Status.
#define K3POD_ASSIGN(decl, expr) K3POD_ASSIGN_IMPL_(decl, expr, __LINE__)
#define K3POD_ASSIGN_IMPL_(decl, expr, line) K3POD_ASSIGN_IMPL2_(decl, expr, line)
#define K3POD_ASSIGN_IMPL2_(decl, expr, line)                              \
    auto k3pod_result_##line = (expr);                                     \
    if (!k3pod_result_##line.is_ok()) return k3pod_result_##line.status(); \
    decl = std::move(k3pod_result_##line).value()
