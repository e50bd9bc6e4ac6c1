KERNEL2(256, 1) void inner(const bf16* __restrict__ g_in0, const bf16* __restrict__ g_in1, const bf16* __restrict__ g_in2, bf16* __restrict__ g_out0, bf16* __restrict__ g_out1, bf16* __restrict__ g_out2, i32 p0, i32 p1, f32 p2) {
  f32* s_sum0 = (f32*)(shared_memory());
  f32* s_sum1 = (f32*)(shared_memory() + 32);
  f32 r_sum1[8];
  f32 r_sum5[8];
  bf16 e_in0[1];
  Raw<bf16, 8> q_in0[5];
  bf16 r_in0[8];
  bf16 r_out0[8];
  bf16 r_in1[8];
  bf16 r_in2[8];
  bf16 e_in1[1];
  bf16 e_in2[1];
  bf16 r_out1[1];
  bf16 r_out2[1];
  const i32 v0 = p0 * block_x();
  const i32 v1 = (64 - (v0 % 64)) % 64;
  const i32 v2 = (v1 % 8) / 2;
  const i32 v3 = (((((thread_x() + 2048) - v1) / 2048) * ((p0 - (v1 + 7)) / 8)) * 8) + thread_x();
  const bool v4 = block_x() < p1;
  const bool v5 = (v3 < p0) && v4;
  if (v5) {
    const i32 v6 = v0 + v3;
    load(e_in0, g_in0 + v6);
  }
  reset<Sum>(r_sum1);
  const i32 v7 = thread_x() * 8;
  UNROLL for (i32 v8 = 0; v8 < 5; ++v8) {
    const i32 v9 = v8 * 2048;
    const i32 v10 = ((v0 + v1) + v7) + v9;
    const i32 v11 = (v1 + v7) + v9;
    const bool v12 = v4 && ((v11 + 14) < p0);
    load_raw_if(q_in0[v8], g_in0 + v10, v12);
  }
  UNROLL for (i32 v8 = 0; v8 < 5; ++v8) {
    const i32 v13 = v8 * 2048;
    const i32 v14 = (v1 + v7) + v13;
    const bool v15 = v4 && ((v14 + 14) < p0);
    if (v15) {
      unpack(r_in0, q_in0[v8]);
      UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
        accumulate_(Sum(), r_sum1[v16], to<f32>(r_in0[v16]));
      }
    }
  }
  if (v5) {
    accumulate_(Sum(), r_sum1[0], to<f32>(e_in0[0]));
  }
  fold<Sum>(r_sum1);
  r_sum1[0] = reduce_lanes<Sum, 32>(r_sum1[0]);
  publish_warp(s_sum0, r_sum1[0]);
  sync_block();
  r_sum1[0] = collect_warps<Sum, 8>(s_sum0);
  const f32 v17 = r_sum1[0] * p2;
  const bf16 v18 = to<bf16>(v17);
  reset<Sum>(r_sum5);
  UNROLL for (i32 v8 = 0; v8 < 5; ++v8) {
    const i32 v19 = v8 * 2048;
    const i32 v20 = (v1 + v7) + v19;
    const bool v21 = v4 && ((v20 + 14) < p0);
    if (v21) {
      unpack(r_in0, q_in0[v8]);
      UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
        const f32 v22 = to<f32>(r_in0[v16]) - v17;
        accumulate_(Sum(), r_sum5[v16], v22, v22);
      }
    }
  }
  if (v5) {
    const f32 v23 = to<f32>(e_in0[0]) - v17;
    accumulate_(Sum(), r_sum5[0], v23, v23);
  }
  fold<Sum>(r_sum5);
  r_sum5[0] = reduce_lanes<Sum, 32>(r_sum5[0]);
  publish_warp(s_sum1, r_sum5[0]);
  sync_block();
  r_sum5[0] = collect_warps<Sum, 8>(s_sum1);
  const f32 v24 = fma_rn(r_sum5[0], p2, 9.99999975e-06f);
  const f32 v25 = rsqrt_(v24);
  const bf16 v26 = to<bf16>(v25);
  const bool v27 = v2 == 0;
  const bool v28 = v2 == 1;
  const bool v29 = v2 == 2;
  const bool v30 = v2 == 3;
  UNROLL for (i32 v8 = 0; v8 < 5; ++v8) {
    const i32 v31 = v8 * 2048;
    const i32 v32 = (v1 + v7) + v31;
    const bool v33 = v4 && ((v32 + 14) < p0);
    if (v33) {
      if (v27) {
        unpack(r_in0, q_in0[v8]);
        load_shifted_by<0>(r_in1, g_in1, v32);
        load_shifted_by<0>(r_in2, g_in2, v32);
        UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
          const f32 v34 = to<f32>(r_in0[v16]) - v17;
          const f32 v35 = v34 * v25;
          const f32 v36 = fma_rn(v35, to<f32>(r_in1[v16]), to<f32>(r_in2[v16]));
          const bf16 v37 = to<bf16>(v36);
          r_out0[v16] = v37;
        }
        const i32 v38 = ((v0 + v1) + v7) + v31;
        store(g_out0 + v38, r_out0);
      }
      if (v28) {
        unpack(r_in0, q_in0[v8]);
        load_shifted_by<1>(r_in1, g_in1, v32);
        load_shifted_by<1>(r_in2, g_in2, v32);
        UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
          const f32 v39 = to<f32>(r_in0[v16]) - v17;
          const f32 v40 = v39 * v25;
          const f32 v41 = fma_rn(v40, to<f32>(r_in1[v16]), to<f32>(r_in2[v16]));
          const bf16 v42 = to<bf16>(v41);
          r_out0[v16] = v42;
        }
        const i32 v43 = ((v0 + v1) + v7) + v31;
        store(g_out0 + v43, r_out0);
      }
      if (v29) {
        unpack(r_in0, q_in0[v8]);
        load_shifted_by<2>(r_in1, g_in1, v32);
        load_shifted_by<2>(r_in2, g_in2, v32);
        UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
          const f32 v44 = to<f32>(r_in0[v16]) - v17;
          const f32 v45 = v44 * v25;
          const f32 v46 = fma_rn(v45, to<f32>(r_in1[v16]), to<f32>(r_in2[v16]));
          const bf16 v47 = to<bf16>(v46);
          r_out0[v16] = v47;
        }
        const i32 v48 = ((v0 + v1) + v7) + v31;
        store(g_out0 + v48, r_out0);
      }
      if (v30) {
        unpack(r_in0, q_in0[v8]);
        load_shifted_by<3>(r_in1, g_in1, v32);
        load_shifted_by<3>(r_in2, g_in2, v32);
        UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
          const f32 v49 = to<f32>(r_in0[v16]) - v17;
          const f32 v50 = v49 * v25;
          const f32 v51 = fma_rn(v50, to<f32>(r_in1[v16]), to<f32>(r_in2[v16]));
          const bf16 v52 = to<bf16>(v51);
          r_out0[v16] = v52;
        }
        const i32 v53 = ((v0 + v1) + v7) + v31;
        store(g_out0 + v53, r_out0);
      }
    }
  }
  if (v5) {
    load(e_in1, g_in1 + v3);
    load(e_in2, g_in2 + v3);
    const f32 v54 = to<f32>(e_in0[0]) - v17;
    const f32 v55 = v54 * v25;
    const f32 v56 = fma_rn(v55, to<f32>(e_in1[0]), to<f32>(e_in2[0]));
    const bf16 v57 = to<bf16>(v56);
    r_out0[0] = v57;
    const i32 v58 = v0 + v3;
    store1(g_out0 + v58, r_out0[0]);
  }
  r_out1[0] = v18;
  r_out2[0] = v26;
  const bool v59 = (thread_x() == 0) && v4;
  store_if(g_out1 + block_x(), r_out1, v59);
  store_if(g_out2 + block_x(), r_out2, v59);
}
