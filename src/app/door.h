#pragma once
// What users meet at the station's address: the API, and before it is there a 503, so that probes
// see "loading" from the first second on. What the pod shows of its experts is here as well.

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "k3pod/api/http_server.h"
#include "k3pod/api/openai_api.h"
#include "k3pod/placement/placement.h"
#include "k3pod/placement/popularity.h"

namespace k3pod {

// Any thread.
class Door {
  public:
    void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
    // Borrowed.
    void open(OpenAiApi& api);
    // From now on anyone may read who holds what, and, with the second, what was picked.
    void show_placement(const Placement& placement);
    void show_trace(std::function<PickTrace()> trace);

  private:
    // Whether the request was for a page of the pod.
    bool answer_page(const HttpRequest& request, HttpReply& reply);

    std::mutex mutex_;
    OpenAiApi* api_ = nullptr;
    std::shared_ptr<const std::string> placement_;  // shared with answers under way
    std::function<PickTrace()> trace_;
};

}  // namespace k3pod
