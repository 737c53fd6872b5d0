// A stranger controls a request's bytes and how they are cut: the first byte says where, the rest is the request. Both
// must give the same request, or both a refusal.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gyre/net/http/error.h"
#include "gyre/net/http/internal/request_parser.h"

namespace {

using gyre::net::http::HttpError;
using gyre::net::http::internal::RequestParser;

struct Result {
  int refusal = 0;
  bool done = false;
  std::string target{};
  std::string body{};
  std::size_t left = 0;

  bool operator==(const Result&) const = default;
};

Result parse(std::string_view text, std::size_t cut) {
  RequestParser parser(4'096);
  Result result;
  std::string buffer;
  try {
    for (const std::string_view part : {text.substr(0, cut), text.substr(cut)}) {
      buffer += part;
      for (std::size_t consumed = 1; consumed > 0 && !buffer.empty() && !parser.done();) {
        consumed = parser.put(buffer);
        buffer.erase(0, consumed);
        if (parser.head_done()) result.body += parser.take_body();
      }
    }
  } catch (const HttpError& error) {
    if (error.status() < 400 || error.status() > 505) std::abort();
    return {.refusal = error.status()};
  }
  result.done = parser.done();
  if (parser.head_done()) result.target = parser.target_text();
  if (result.done) result.left = buffer.size();
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (parse(text, data[0] % (text.size() + 1)) != parse(text, text.size())) std::abort();
  return 0;
}
