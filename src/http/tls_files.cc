// SPDX-License-Identifier: Apache-2.0
#include "src/http/tls_files.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kvcast {
namespace {

using Context = boost::asio::ssl::context;
using Error = boost::system::error_code;

Status BadFile(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

// The errors of OpenSSL do not show why a file cannot be read.
Status CheckReadable(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return BadFile(std::strerror(errno));
  close(file);
  return Status();
}

Status LoadCertificate(const std::string& path, Context& context) {
  if (Status status = CheckReadable(path); !status.ok()) return status;
  Error error;
  context.use_certificate_chain_file(path, error);
  if (error) return BadFile("not a PEM certificate: " + error.message());
  const X509* const certificate = SSL_CTX_get0_certificate(context.native_handle());
  // 0: the time cannot be read.
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0) return BadFile("has expired");
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) >= 0)
    return BadFile("is not valid yet");
  return Status();
}

Status LoadKey(const std::string& path, Context& context) {
  if (Status status = CheckReadable(path); !status.ok()) return status;
  Error error;
  context.use_private_key_file(path, Context::pem, error);
  if (!error) return Status();
  const auto code = static_cast<unsigned long>(error.value());
  if (ERR_GET_LIB(code) == ERR_LIB_X509 && ERR_GET_REASON(code) == X509_R_KEY_VALUES_MISMATCH) {
    return BadFile("does not belong to the certificate");
  }
  return BadFile("not a PEM key without a password: " + error.message());
}

}  // namespace

Status LoadTlsFiles(const std::string& certificate, const std::string& key, Context& context) {
  Error error;
  context.set_options(Context::no_sslv2 | Context::no_sslv3 | Context::no_tlsv1 |
                          Context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION,
                      error);
  // Without this function, OpenSSL would request the password on the terminal.
  context.set_password_callback([](size_t, Context::password_purpose) { return std::string(); },
                                error);
  if (Status status = LoadCertificate(certificate, context); !status.ok()) {
    return BadFile("TLS certificate " + certificate + ": " + status.message());
  }
  if (Status status = LoadKey(key, context); !status.ok()) {
    return BadFile("TLS key " + key + ": " + status.message());
  }
  return Status();
}

}  // namespace kvcast
