import pytest

from analyzers.trace.kernel_names import is_communication, looks_like_communication

COMMUNICATION = [
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "ncclSendRecvKernel_copy_i8(ncclColl)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    "rcclGenericKernel<1, 2>(ncclDevComm*)",
    "void mscclKernel_Sum_float_LL(ncclDevComm*)",
    "nvshmemi_transfer_kernel(int)",
    "void c10d::nvshmem_extension::allToAllV(void*)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
    "void c10d::symmetric_memory::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, 4>(c10::BFloat16**)",
    "two_shot_all_reduce_kernel_inplace<float>(float**)",
    "void c10d::intra_node_comm::oneShotAllReduce<8u, true>(c10::BFloat16*, unsigned long)",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 4>(AllReduceParams)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<float>(int)",
    "hybridCubeMeshAllReduce<8>(float*)",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
    "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*)",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
]
COMPUTE = [
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 4>(int)",
    "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*)",
    "triton_poi_fused_add_cos_sin_0",
    "Cijk_Alik_Bljk_SB_MT64x16x32_MI16x16x1_SN_1LDSB0",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
]
SUSPICIOUS = ["my_fused_allreduce_rmsnorm", "AllGatherGemm", "ncclx_pipes_kernel", "custom_all_to_all_sendrecv(int)"]


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication(name):
    assert is_communication(name)
    assert not looks_like_communication(name)


@pytest.mark.parametrize("name", COMPUTE)
def test_compute(name):
    assert not is_communication(name)
    assert not looks_like_communication(name)


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_names_that_no_rule_knows_are_noticed(name):
    assert not is_communication(name)
    assert looks_like_communication(name)
