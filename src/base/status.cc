#include "k3pod/base/status.h"

#include "k3pod/base/check.h"

namespace k3pod {

std::string_view code_name(Code code) {
    switch (code) {
        case Code::kOk:
            return "ok";
        case Code::kInvalidArgument:
            return "invalid_argument";
        case Code::kNotFound:
            return "not_found";
        case Code::kPermissionDenied:
            return "permission_denied";
        case Code::kFailedPrecondition:
            return "failed_precondition";
        case Code::kResourceExhausted:
            return "resource_exhausted";
        case Code::kUnavailable:
            return "unavailable";
        case Code::kDeadlineExceeded:
            return "deadline_exceeded";
        case Code::kCancelled:
            return "cancelled";
        case Code::kDataLoss:
            return "data_loss";
        case Code::kUnimplemented:
            return "unimplemented";
        case Code::kInternal:
            return "internal";
    }
    return "unknown";
}

Status::Status(Code code, std::string message) {
    K3POD_CHECK(code != Code::kOk, "an error Status needs an error code");
    rep_ = std::make_shared<const Rep>(Rep{code, std::move(message)});
}

const std::string& Status::message() const {
    static const std::string kEmpty;
    return rep_ ? rep_->message : kEmpty;
}

std::string Status::to_string() const {
    if (is_ok()) return "ok";
    return std::string(code_name(code())) + ": " + message();
}

Status Status::with_context(std::string_view prefix) const {
    if (is_ok()) return *this;
    return Status(code(), std::string(prefix) + ": " + message());
}

Status invalid_argument(std::string message) {
    return {Code::kInvalidArgument, std::move(message)};
}
Status not_found(std::string message) {
    return {Code::kNotFound, std::move(message)};
}
Status failed_precondition(std::string message) {
    return {Code::kFailedPrecondition, std::move(message)};
}
Status resource_exhausted(std::string message) {
    return {Code::kResourceExhausted, std::move(message)};
}
Status unavailable(std::string message) {
    return {Code::kUnavailable, std::move(message)};
}
Status deadline_exceeded(std::string message) {
    return {Code::kDeadlineExceeded, std::move(message)};
}
Status cancelled(std::string message) {
    return {Code::kCancelled, std::move(message)};
}
Status data_loss(std::string message) {
    return {Code::kDataLoss, std::move(message)};
}
Status internal_error(std::string message) {
    return {Code::kInternal, std::move(message)};
}

namespace detail {
void bad_result_access(const Status& status) {
    check_failed("Result has a value", status.to_string().c_str(), __FILE__, __LINE__);
}
}  // namespace detail

}  // namespace k3pod
