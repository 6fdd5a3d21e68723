/* From a request that is dealt with to the response: its status, its headers and its body. */
#pragma once

#include <microhttpd.h>

struct hf_api_request;

enum MHD_Result hf_api_answer(struct hf_api_request *request);
