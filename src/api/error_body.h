#pragma once
// Errors in OpenAI's shape, used by the HTTP server for its own refusals and by the API.

#include <string>
#include <string_view>

#include "k3pod/api/http_server.h"

namespace k3pod {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

struct ApiError {
    int status = 400;
    std::string message{};
    std::string param{};  // the field; empty: null
    std::string code{};   // short name for programs; empty: null
    std::string type{};   // empty: the usual one of the status
};

// {"error":{"message","type","param","code"}}, with Retry-After for 429 and 503. Long messages are
// cut, so that an error is never much larger than what it is about.
HttpResponse error_response(const ApiError& error);

// The same object without the HTTP around it, for an error inside a stream.
std::string error_json(const ApiError& error);

// 'text' in quotes, at most 64 bytes of it, cut at a character and marked as cut.
std::string excerpt(std::string_view text);

}  // namespace k3pod
