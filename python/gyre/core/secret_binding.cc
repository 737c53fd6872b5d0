#include "python/gyre/core/secret_binding.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/base/secret_key.h"
#include "gyre/group/job.h"
#include "gyre/net/endpoint.h"
#include "python/gyre/core/interruptible.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

Deadline within(double seconds) {
  return Deadline::after(std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds)));
}

SecretKey random_secret() {
  SecretKey key;
  fill_with_secure_random(key);
  return key;
}

SecretKey from_hex(std::string_view digits) {
  if (const auto key = key_from_hex(digits)) return *key;
  throw Error(ErrorCode::kInvalidArgument, "a key is 64 hexadecimal digits");
}

nb::bytes sign(const SecretKey& key, std::string_view text) {
  const Sha256 signature = hmac_sha256(key, as_bytes(text));
  return nb::bytes(reinterpret_cast<const char*>(signature.data()), signature.size());
}

void hand_out(const std::shared_ptr<group::LocalKeyServer>& server, int size, const SecretKey& key, double seconds) {
  run_interruptibly([=] {
    server->hand_out(size, key, within(seconds));
    return true;
  });
}

SecretKey fetch(const std::string& name, int rank, double seconds) {
  return run_interruptibly([=] { return group::fetch_key_on_this_host(name, rank, within(seconds)); });
}

}  // namespace

void bind_secret(nb::module_& module) {
  nb::class_<SecretKey>(module, "Secret", "A key of 32 bytes; see gyre/base/secret_key.h.")
      .def_static("from_environment", &group::secret_from_environment,
                  "The secret that the ranks of the job share: GYRE_KEY_FD's, else GYRE_KEY_FILE's, else None.")
      .def_static("random", &random_secret)
      .def_static("from_hex", &from_hex, "digits"_a)
      .def(
          "hex", [](const SecretKey& self) { return hex_of(self); }, "Its digits, for those who may know it.")
      .def(
          "derive", [](const SecretKey& self, std::string_view purpose) { return derive_key(self, purpose); },
          "purpose"_a, "The key for one purpose.")
      .def("sign", &sign, "text"_a, "HMAC-SHA256.")
      .def("rendezvous_on_this_host",
           [](const SecretKey& self) { return net::to_string(group::rendezvous_on_this_host(self)); });
  nb::class_<group::LocalKeyServer>(module, "LocalKeyServer", "See gyre/group/job.h.")
      .def(nb::new_([] { return std::make_shared<group::LocalKeyServer>(); }))
      .def_prop_ro("name", &group::LocalKeyServer::name)
      .def("hand_out", &hand_out, "size"_a, "key"_a, "seconds"_a);
  module.def("fetch_key_on_this_host", &fetch, "name"_a, "rank"_a, "seconds"_a);
}

}  // namespace gyre::python
